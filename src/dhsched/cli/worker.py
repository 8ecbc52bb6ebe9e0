"""`dhsched worker ...`: see Workers, and keep new lives away from one."""

from __future__ import annotations

from typing import Annotated

import typer

from dhsched.cli.remote import URL, Json, Url, all_pages, client, show

app = typer.Typer(help="Workers: list, look at, cordon.", no_args_is_help=True)

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
    document = client(url).call("GET", "workers", worker)
    if not json:
        show({name: value for name, value in document.items() if name != "slots"}, False)
    show(document, json, ("live_id", "number", "state"), document["slots"])


@app.command()
def cordon(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Take no new lives on this Worker; those it has stay."""
    show(client(url).call("POST", "workers", worker, "cordon"), json)


@app.command()
def uncordon(worker: WorkerId, json: Json = False, url: Url = URL) -> None:
    """Take new lives on this Worker again."""
    show(client(url).call("POST", "workers", worker, "uncordon"), json)
