"""`dhsched cells ...`: list the cells of a deployment that has several, move a Worker from one to another, and see
where cells lie in a Valkey Cluster.

`ls` and `move-worker` ask Dispatch. `place` asks the cluster itself (--store), also before there is a deployment: a
cell is served by the primary that has its hash slot, and the slot follows from the cell's name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dhsched.cells.fixed import CELLS_MAX, read_cells
from dhsched.cells.slots import find_crowded
from dhsched.cli.remote import URL, Json, Server, Url, all_pages, show
from dhsched.errors import BadSetting, DhschedError
from dhsched.types import name_of

if TYPE_CHECKING:
    from dhsched.store.server.shards import Shard

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

CELLS = "DHSCHED_CELLS"
COLUMNS = ("name", "ready", "workers", "lives", "free", "home", "trouble")
LEAST = ("home", "workers", "lives", "free", "trouble")
PLACES = ("cell", "slot", "primary", "replicas")
ARRIVE_S = 60.0  # A drained Worker that is not in its new cell after this time is reported.
POLL_S = 1.0  # Time between two looks whether it is.
GONE = frozenset({"gone", "lost"})


@app.command()
def ls(json: Json = False, url: Url = URL) -> None:
    """List the cells in their order: whether each is served, and its Workers, lives and free slots."""
    document = Server(url).call("GET", "cells")
    show(document, json, COLUMNS, document["cells"], least=LEAST, cut="trouble")


@app.command("move-worker")
def move_worker(
    worker: Annotated[str, typer.Argument(help="WorkerID, like gpu-a#7.")],
    cell: Annotated[str, typer.Argument(help="Name of the cell to go to.")],
    deadline: Annotated[
        float | None, typer.Option(help="Seconds after which the lives that are left are cut over at once.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until the Worker is registered in the cell.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Move a Worker to another cell: its lives move to other Workers of its cell, and once it is empty it registers
    anew. `dhsched worker undrain` cancels the move until then.

    A Worker that is restarted meanwhile stays in its cell. One that is started with --cell goes back to that at its
    next start.
    """
    from dhsched.cli.worker import show_drain, until_empty  # Late: `cells ls` does not need it.

    server = Server(url)
    body = {"to_cell": cell, **({} if deadline is None else {"deadline_s": deadline})}
    document = server.call("POST", "workers", worker, "drain", body=body, twice=True)
    if not wait:
        show_drain(document, json)
        return
    document = until_empty(server, worker, document, quiet=json)
    if not document["done"]:
        raise DhschedError(f"the drain of Worker {worker} was cancelled: it stays in its cell")
    arrived = until_arrived(url, name_of(worker), cell)
    show(arrived, json, ("worker", "cell", "status", "load", "capacity"), [arrived])


def until_arrived(url: str, name: str, cell: str) -> dict[str, Any]:
    """Return the Worker of this name in a cell, once it has registered there; raise DhschedError after ARRIVE_S."""

    def is_there(row: Mapping[str, Any]) -> bool:
        return row.get("cell") == cell and name_of(row["worker"]) == name and row["status"] not in GONE

    give_up = time.monotonic() + ARRIVE_S
    while time.monotonic() < give_up:
        if found := all_pages(url, "workers", "workers", {}, 1, wanted=is_there):
            return found[0]
        time.sleep(POLL_S)
    raise DhschedError(
        f"Worker {name} is drained, and has not registered in cell {cell} within {ARRIVE_S:g} s; its log says why, "
        "and dhsched worker ls where it is"
    )


@app.command()
def place(
    store: Annotated[
        str, typer.Option("--store", envvar="DHSCHED_STORE", metavar="URL", help="URL of the Valkey Cluster.")
    ],
    count: Annotated[
        int | None, typer.Option(min=2, max=CELLS_MAX, help="Number of cells of a new deployment: names are proposed.")
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(metavar="'NAME ...'", help="Cells to look at, if --count is not given. [env: DHSCHED_CELLS]"),
    ] = None,
    json: Json = False,
) -> None:
    """Show which primary of a Valkey Cluster serves each cell, and propose names of cells on different primaries.

    Exit code 1 if two of the given cells are on one primary while another has none.
    """
    import asyncio  # Late, like what follows, so that other verbs do not load it.

    from dhsched.store.link.address import parse_address
    from dhsched.store.server.shards import choose_cells, read_shards

    if count is not None and cells is not None:
        raise BadSetting("--count and --cells were both given; names are proposed or looked at: give one of them")
    named = () if count is not None else read_cells(os.environ.get(CELLS, "") if cells is None else cells)
    if count is None and not named:
        raise BadSetting(f"no cells to look at: give --count N for a proposal, or the names with --cells or {CELLS}")
    if elsewhere := [each.name for each in named if each.url]:
        raise BadSetting(
            f"cell {', '.join(elsewhere)} has a server of its own, by the URL behind its name, and no place in this "
            "cluster: give only cells without one"
        )
    shards = asyncio.run(read_shards(parse_address(store)))
    names = choose_cells(shards, count) if count is not None else [each.name for each in named]
    rows = [row(name, shards) for name in names]
    show({"cells": rows}, json, PLACES, rows, least=("replicas", "slot"))
    if count is None:
        refuse_bad_places(rows, shards)
    elif not json:
        typer.echo(f"\nGive every service these cells, in this order:\n  {CELLS}='{' '.join(names)}'")


def row(cell: str, shards: Sequence[Shard]) -> dict[str, Any]:
    """Return where a cell lies. `primary` is empty if no node serves its slot."""
    from dhsched.store.server.shards import cell_slot, shard_of

    shard = shard_of(shards, cell)
    primary = "" if shard is None else str(shard.primary)
    replicas = [] if shard is None else [str(each) for each in shard.replicas]
    return {"cell": cell, "slot": cell_slot(cell), "primary": primary, "replicas": replicas}


def refuse_bad_places(rows: Sequence[Mapping[str, Any]], shards: Sequence[Shard]) -> None:
    """Raise DhschedError if a cell has no primary, or if cells share one while another primary has no cell."""
    for each in rows:
        if not each["primary"]:
            raise DhschedError(
                f"no node of the cluster serves slot {each['slot']} of cell {each['cell']}: give it to a primary "
                "(CLUSTER ADDSLOTS)"
            )
    crowded = find_crowded({each["cell"]: each["primary"] for each in rows}, [str(each.primary) for each in shards])
    if crowded is None:
        return
    first, cell = crowded.cells[:2]
    slot = next(each["slot"] for each in rows if each["cell"] == cell)
    raise DhschedError(
        f"cells {first} and {cell} are both on {crowded.primary}, and {crowded.free} has no cell: move slot {slot} of "
        f"cell {cell} there (valkey-cli --cluster reshard, or CLUSTER MIGRATESLOTS of Valkey 9); for a new deployment "
        f"take the names that dhsched cells place --count {len(rows)} proposes"
    )
