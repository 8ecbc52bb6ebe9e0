"""`dhsched worker ...`: see Workers, keep new lives away from one, empty one."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, all_pages, show
from dhsched.errors import Refused

app = typer.Typer(help="Workers: list, look at, cordon, drain.", no_args_is_help=True)
LOOK_S = 0.5  # Between two looks at a drain that is waited for.
SHOWN = ("live_id", "state", "code", "target", "reason")

WorkerId = Annotated[str, typer.Argument(help="The WorkerID, like gpu-a#7.")]
COLUMNS = ("worker", "pool", "status", "load", "capacity", "starting", "labels")


@app.command()
def ls(
    pool: Annotated[str | None, typer.Option(help="Workers of this Pool.")] = None,
    status: Annotated[str | None, typer.Option(help="ready, new, cordoned, draining, lost or gone.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1_000,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Workers by id."""
    rows = all_pages(url, "workers", "workers", {"pool": pool, "status": status}, limit)
    show(rows, json, COLUMNS, rows)


@app.command()
def get(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """One Worker and its slots."""
    document = Server(url).call("GET", "workers", worker)
    if not json:
        show({name: value for name, value in document.items() if name != "slots"}, False)
    show(document, json, ("live_id", "number", "state"), document["slots"])


@app.command()
def cordon(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Take no new lives on this Worker; those it has stay."""
    show(Server(url).call("POST", "workers", worker, "cordon", twice=True), json)


@app.command()
def uncordon(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Take new lives on this Worker again."""
    show(Server(url).call("POST", "workers", worker, "uncordon", twice=True), json)


@app.command()
def drain(
    worker: WorkerId,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds after which what is left is cut over at once.")
    ] = None,
    boundary_wait: Annotated[
        float | None, typer.Option(help="Seconds that a live may take to come to a boundary.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Until nothing is left on it.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Move every live off this Worker, at boundaries. Said again, it changes what is given."""
    body = {"deadline_s": deadline, "boundary_wait_s": boundary_wait}
    given = {name: value for name, value in body.items() if value is not None}
    server = Server(url)
    document = server.call("POST", "workers", worker, "drain", body=given, twice=True)
    if wait:
        document = until_empty(server, worker, document, quiet=json)
    show_drain(document, json)


@app.command()
def undrain(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Cancel a drain: what has not moved stays, and new lives are taken again."""
    show(Server(url).call("DELETE", "workers", worker, "drain"), json)


@app.command()
def drained(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """How far a drain is, and what holds up each live that is left."""
    show_drain(Server(url).call("GET", "workers", worker, "drain"), json)


def show_drain(document: dict[str, Any], json: bool) -> None:
    if not json:
        show({name: value for name, value in document.items() if name != "details"}, False)
    if json or document["details"]:
        show(document, json, SHOWN, document["details"], cut="reason")


def until_empty(server: Server, worker: str, document: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Look again and again until the Worker is empty, gone, or not draining any more. Ctrl-C leaves it draining."""
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
                # It was empty and has exited, or it is gone and its lives are recovery's.
                document = {**document, "status": "gone", "left": 0, "done": True, "reasons": {}, "details": []}
        bar.update(task, total=document["lives"], completed=document["lives"] - document["left"], left="")
    return document
