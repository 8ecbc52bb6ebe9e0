"""`dhsched worker ...`: list and show Workers, cordon them (no new lives), drain them (move their lives away)."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, all_pages, show
from dhsched.errors import Refused

app = typer.Typer(help="Workers: list, show, cordon, drain.", no_args_is_help=True)
LOOK_S = 0.5  # Time between two reads of the drain's progress with --wait.
SHOWN = ("live_id", "state", "code", "target", "reason")

WorkerId = Annotated[str, typer.Argument(help="WorkerID, like gpu-a#7.")]
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
    show(rows, json, COLUMNS, rows)


@app.command()
def get(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Show one Worker and its slots."""
    document = Server(url).call("GET", "workers", worker)
    if not json:
        show({name: value for name, value in document.items() if name != "slots"}, False)
    show(document, json, ("live_id", "number", "state"), document["slots"])


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
            time.sleep(LOOK_S)
            try:
                document = server.call("GET", "workers", worker, "drain")
            except Refused as refused:
                if refused.code != "NOT_FOUND":
                    raise
                # The Worker was empty and has exited, or it is gone and recovery moves its lives.
                document = {**document, "status": "gone", "left": 0, "done": True, "reasons": {}, "details": []}
        bar.update(task, total=document["lives"], completed=document["lives"] - document["left"], left="")
    return document
