"""`dhsched worker ...`: list and show Workers, cordon them (no new lives), drain them (move their lives away), give a
machine its own key, ban a name."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from dhsched.access.key_file import KeyFile, replacing
from dhsched.access.machine_records import NOT_JOINED
from dhsched.cli.pod_costs import pod_costs
from dhsched.cli.pool import uneven
from dhsched.cli.remote import URL, Json, Server, Url, all_pages, seconds_of, show, with_cell
from dhsched.errors import DhschedError, Refused

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)
POLL_S = 0.5  # Time between two reads of what is waited for.
POOLS_MAX = 20  # Of more Pools, only the first are checked for their spread.
SHOWN = ("live_id", "state", "code", "target", "reason")

WorkerId = Annotated[str, typer.Argument(help="WorkerID, like gpu-a#7.")]
WorkerName = Annotated[str, typer.Argument(help="Name of the Worker, like gpu-a.")]
COLUMNS = ("worker", "pool", "status", "load", "capacity", "starting", "labels")


@app.command()
def ls(
    pool: Annotated[str | None, typer.Option(help="Pool of the Workers.")] = None,
    status: Annotated[str | None, typer.Option(help="Status: ready, new, cordoned, draining, lost or gone.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most rows.")] = 1_000,
    json: Json = False,
    url: Url = URL,
) -> None:
    """List Workers by id."""
    rows = all_pages(url, "workers", "workers", {"pool": pool, "status": status}, limit)
    if any(row["devices"] for row in rows):
        shown = [{**row, "devices": devices_of(row)} for row in rows]
        columns = with_cell((*COLUMNS, "devices"), rows)
        show({"workers": rows}, json, columns, shown, least=("labels", "starting", *columns[len(COLUMNS) :]))
    else:
        show({"workers": rows}, json, with_cell(COLUMNS, rows), rows)
    if json:
        return
    server = Server(url)
    if banned := server.call("GET", "bans")["bans"]:
        typer.echo(f"banned names: {', '.join(ban['name'] for ban in banned)}", err=True)
    for line in uneven(server, sorted({row["pool"] for row in rows})[:POOLS_MAX]):
        typer.echo(line, err=True)


@app.command()
def get(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Show one Worker and its slots."""
    document = Server(url).call("GET", "workers", worker)
    if not json:
        hidden = ("slots",) if document["devices"] else ("slots", "devices")
        told = {**document, "devices": devices_of(document)}
        show({name: value for name, value in told.items() if name not in hidden}, False)
    show(document, json, ("live_id", "number", "state"), document["slots"])


@app.command()
def wait(
    name: WorkerName,
    timeout: Annotated[str, typer.Option(help="Time to wait, like 90s, 10m or 2h; then exit code 1.")] = "5m",
    json: Json = False,
    url: Url = URL,
) -> None:
    """Wait until a Worker is ready: it takes new lives. A WorkerID waits for that boot, a name for any boot."""
    ends = time.monotonic() + seconds_of(timeout, "--timeout")
    status = "is not known"
    while True:
        try:
            found = all_pages(url, "workers", "workers", {}, 20_000, lambda row: name in (row["worker"], name_of(row)))
        except Refused:
            raise
        except DhschedError as error:  # Dispatch may be starting, too.
            found, status = [], f"is not known ({error})"
        for row in found:
            if row["status"] == "ready":
                show(row, json)
                return
            status = f"is {row['status']}"
        if time.monotonic() >= ends:
            raise DhschedError(f"Worker {name} {status} after {timeout}; `dhsched worker ls` lists all Workers")
        time.sleep(POLL_S)


def devices_of(row: dict[str, Any]) -> str:
    """Return the devices of a Worker in one cell; those that are blamed say so."""
    return ", ".join(f"{each['name']} (blamed)" if each["blamed"] else each["name"] for each in row["devices"])


def name_of(row: dict[str, Any]) -> str:
    return str(row["worker"]).partition("#")[0]


@app.command()
def cordon(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Place no new lives on this Worker; its lives stay."""
    show(Server(url).call("POST", "workers", worker, "cordon", twice=True), json)


@app.command()
def uncordon(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Place new lives on this Worker again."""
    show(Server(url).call("POST", "workers", worker, "uncordon", twice=True), json)


@app.command()
def drain(
    worker: WorkerId,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds after which the lives that are left are cut over at once.")
    ] = None,
    boundary_wait: Annotated[
        float | None, typer.Option(help="Seconds that a live waits for a boundary; then it is cut over without one.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until the Worker has no lives.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Move every live off this Worker, at boundaries. A second drain changes only the options that are given."""
    body = {"deadline_s": deadline, "boundary_wait_s": boundary_wait}
    given = {name: value for name, value in body.items() if value is not None}
    server = Server(url)
    document = server.call("POST", "workers", worker, "drain", body=given, twice=True)
    if wait:
        document = until_empty(server, worker, document, quiet=json)
    show_drain(document, json)


@app.command()
def undrain(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Cancel a drain: lives that have not moved stay, and new lives are placed here again."""
    show(Server(url).call("DELETE", "workers", worker, "drain"), json)


@app.command()
def drained(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Show the progress of a drain, and what each remaining live waits for."""
    show_drain(Server(url).call("GET", "workers", worker, "drain"), json)


@app.command()
def invite(
    name: WorkerName,
    pool: Annotated[str, typer.Option(help="Pool of the Worker.")],
    capacity: Annotated[int, typer.Option(min=1, help="Capacity of the Worker: largest number of lives at once.")],
    label: Annotated[
        list[str] | None, typer.Option(help="Label of the Worker. May be repeated. [default: none]")
    ] = None,
    ttl: Annotated[str, typer.Option(help="Lifetime of the token, like 90s, 10m or 2h; at most 1d.")] = "10m",
    json: Json = False,
    url: Url = URL,
) -> None:
    """Print a join token, with which one machine gets its own key for this Worker, once (dhsched worker join)."""
    body = {"name": name, "pool": pool, "capacity": capacity, "labels": label or [], "ttl_s": seconds_of(ttl, "--ttl")}
    made = Server(url).call("POST", "join-tokens", body=body)
    if json:
        show(made, True)
        return
    typer.echo(made["token"])
    typer.echo(f"for one use within {ttl}, on the machine of the Worker:", err=True)
    typer.echo("dhsched worker join TOKEN --key-file FILE", err=True)


@app.command()
def join(
    token: Annotated[
        str, typer.Argument(help="Join token, as `dhsched worker invite` prints it; - for standard input.")
    ],
    key_file: Annotated[
        Path | None, typer.Option(help="File to write the key to. [default: worker-key in this user's state folder]")
    ] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Exchange a join token for this machine's own key, and write the key into a file that only this user can read."""
    token = sys.stdin.readline() if token == "-" else token
    path = key_file or KeyFile().path.with_name("worker-key")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path) as out:  # Before the call: a token must not be used up by a file that cannot be written.
            made = Server(url, key="").call("POST", "join", body={"token": token.strip()}, twice=False)
            out.write(made["key"] + "\n")
    except OSError as error:
        raise DhschedError(f"cannot write the key to {path} ({error.strerror}); give another --key-file") from None
    except Refused as refused:
        if refused.status != 401:
            raise
        raise DhschedError(f"{NOT_JOINED} ({refused.code})") from None
    if json:
        show({**made["record"], "key_file": str(path)}, True)
        return
    record = made["record"]
    labels = f" --labels {','.join(record['labels'])}" if record["labels"] else ""
    size = f"--pool {record['pool']} --capacity {record['capacity_max']}{labels}"
    typer.echo(f"the key of Worker {record['names']} is in {path}; run the Worker with", err=True)
    typer.echo(f"dhsched run worker --name {record['names']} {size} --key-file {path}")


@app.command()
def ban(
    name: WorkerName,
    note: Annotated[str, typer.Option(help="Note that is shown with the ban.")] = "",
    json: Json = False,
    url: Url = URL,
) -> None:
    """Revoke the machine key of a Worker name, end its Workers, and refuse new ones until `unban`."""
    show(Server(url).call("PUT", "bans", name, body={"note": note}), json)


@app.command()
def unban(name: WorkerName, url: Url = URL) -> None:
    """Lift a ban. The machine needs a new join token, or another key."""
    Server(url).call("DELETE", "bans", name)


def show_drain(document: dict[str, Any], json: bool) -> None:
    if not json:
        show({name: value for name, value in document.items() if name != "details"}, False)
    if json or document["details"]:
        show(document, json, SHOWN, document["details"], cut="reason")


def until_empty(server: Server, worker: str, document: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Wait until the Worker is empty, gone, or no longer draining, and return the last answer. Ctrl-C does not cancel
    the drain."""
    from rich.console import Console  # Late: rich takes longer to load than the call takes.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task(f"draining {worker}", total=document["lives"], left="")
        while not document["done"] and document["mode"] == "draining":
            left = ", ".join(f"{count} {code}" for code, count in sorted(document["reasons"].items()))
            bar.update(task, total=document["lives"], completed=document["moved"], left=left)
            time.sleep(POLL_S)
            try:
                document = server.call("GET", "workers", worker, "drain")
            except Refused as refused:
                if refused.code != "NOT_FOUND":
                    raise
                # The Worker was empty and has exited, or it is gone and recovery moves its lives.
                document = {**document, "status": "gone", "left": 0, "done": True, "reasons": {}, "details": []}
        bar.update(task, total=document["lives"], completed=document["lives"] - document["left"], left="")
    return document


app.command("pod-costs")(pod_costs)
