"""`dhsched store ...`: show the store of Dispatch, begin a new term; back a cell up, verify, restore and migrate it.

The last four use the store itself (--store), not Dispatch: they are for a store that no service uses, or may be.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.cli.tables import moment
from dhsched.cli.which_cell import one_cell
from dhsched.errors import BadSetting, DhschedError

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

StoreUrl = Annotated[str, typer.Option("--store", envvar="DHSCHED_STORE", metavar="URL", help="URL of the store.")]
Cell = Annotated[
    str | None,
    typer.Option(
        envvar="DHSCHED_CELL", help="Name of the cell, which must be given with DHSCHED_CELLS. [default: main]"
    ),
]
OneCell = Annotated[
    str | None,
    typer.Option("--cell", metavar="NAME", help="Cell, where the deployment has several. [default: the first]"),
]
BackupFile = Annotated[Path, typer.Argument(help="File of the backup.")]
HOMES_SHOWN = 5  # The latest homes in `status`; --json has all.


@app.command()
def status(cell: OneCell = None, json: Json = False, url: Url = URL) -> None:
    """Show the store's home and replicas, how far they are behind, and what is known to be lost."""
    store = Server(url).call("GET", "store", query={"cell": cell})
    if json:
        show(store, json)
        return
    show(summary(store), json)
    if store["replicas"]:
        typer.echo("")
        rows = [
            {**row, "replica": row["address"], "behind": f"{row['behind_bytes']} bytes"} for row in store["replicas"]
        ]
        show(None, json, ("replica", "state", "behind"), rows)
    typer.echo("")
    homes = [{**each, "since": moment(each["since_ms"])} for each in store["homes"][-HOMES_SHOWN:]]
    show(None, json, ("home", "pos", "since"), homes)
    if store["losses"]:
        typer.echo("")
        losses = [{**each, "lost_in_home": each["home"]} for each in store["losses"]]
        show(None, json, ("lost_in_home", "told", "kept", "calls"), losses)


@app.command("new-term")
def new_term(
    reason: Annotated[str, typer.Option(help="Why; the event shows it.")] = "",
    cell: Annotated[
        str | None,
        typer.Option("--cell", metavar="NAME", help="Cell, which must be named where the deployment has several."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Place every live anew, at once: for a store whose records cannot be trusted any more.

    Every runtime of the cell is stopped and started again, with what its live has saved. A restart or a failover of the
    store does not need this.
    """
    server = Server(url)
    query = {"cell": cell}
    store = server.call("GET", "store", query=query)
    cells = server.call("GET", "cells")["cells"]
    if cell is None and len(cells) > 1:
        names = ", ".join(each["name"] for each in cells)
        raise BadSetting(f"a term is one cell's: name it with --cell, one of {names}")
    lives = sum(each["lives"] for each in cells if cell in (None, each["name"]))
    if not yes:
        ended = f"term {store['term']}" + (f" of cell {cell}" if cell else "")
        typer.echo(f"This ends {ended}: about {lives} lives are stopped and placed anew, all at once.")
        typer.confirm("Begin a new term?", abort=True)
    body = {"term": store["term"], "reason": reason}
    begun = server.call("POST", "store", "new-term", body=body, query=query)
    if json:
        show(begun, json)
    else:
        typer.echo(f"term {begun['term']} has begun; `dhsched recoveries` lists the lives that still have no Worker")


@app.command()
def backup(
    file: BackupFile,
    store: StoreUrl,
    cell: Cell = None,
    pause: Annotated[
        float, typer.Option(min=0.1, max=60, help="Seconds for which the store's writes may stand still.")
    ] = 2.0,
    json: Json = False,
) -> None:
    """Write a whole cell to a file: lives, input, journals, configuration, keys.

    The file is one moment of the cell: the store's writes stand still while the cell is read. The file has the cell's
    secrets in it.
    """
    from dhsched.store.backup import back_up  # Late, so that other verbs do not load it.
    from dhsched.store.link.address import parse_address

    url, name = one_cell(store, cell)
    header, stood_s = asyncio.run(back_up(parse_address(url), name, file, pause_s=pause))
    size = file.stat().st_size
    shown = {**_told(header), "bytes": size, "writes_stood_still_s": round(stood_s, 3)}
    show(shown, json)


@app.command()
def verify(file: BackupFile, json: Json = False) -> None:
    """Check a backup: that it is whole, and that the cell in it keeps every invariant of the protocol.

    The cell is loaded into a server of this verb's own; the store is not touched. Exit code 1 if anything is wrong.
    """
    from dhsched.store import backup as backups

    found = asyncio.run(backups.verify(backups.read(file)))
    shown = {**_told(found.header), "keys": found.keys, "lives": found.lives, "workers": found.workers}
    show({**shown, "violations": [*found.violations]} if json else {**shown, "violations": len(found.violations)}, json)
    if found.violations:
        raise DhschedError(f"{file} has a cell that cannot be: {'; '.join(found.violations[:5])}")


@app.command()
def restore(
    file: BackupFile,
    store: StoreUrl,
    replace: Annotated[bool, typer.Option("--replace", help="Delete what the store has of the cell first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Restore a cell from a backup, in a new term: every live is placed anew, and no number issued before is trusted.

    Stop every Dispatch replica and Infer-Controller first, and start them afterwards. What happened since the backup is
    lost; keys that were revoked and names that were banned since then must be revoked and banned again.
    """
    from dhsched.store import backup as backups
    from dhsched.store.link.address import parse_address

    read, address = backups.read(file), parse_address(store)
    if not yes:
        taken = moment(read.header.taken_at_ms)
        typer.echo(f"This restores cell {read.header.cell} as it was at {taken} into {address.redacted()}.", err=True)
        if replace:
            typer.echo("What the store has of this cell now is deleted.", err=True)
        typer.confirm("Restore?", abort=True, err=True)
    done = asyncio.run(backups.restore(address, read, replace_cell=replace))
    show({**_told(done.header), "keys": done.keys, "term": done.term, "floor": done.floor}, json)
    if not json:
        typer.echo(_next(done.header), err=True)


@app.command()
def migrate(
    store: Annotated[
        str, typer.Option("--store", envvar="DHSCHED_STORE", metavar="URL", help="URL of the store.")
    ] = "",
    cell: Cell = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the store of `dhsched up --data-dir`, in place of --store.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=5_000, help="Lives that one call migrates.")] = 200,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Bring the data of an older version to the form that this version works with.

    Back the cell up, and stop every Dispatch replica and Infer-Controller of it first; Workers may go on running. If
    this command is interrupted, run it again: it goes on where it was. Older versions cannot use the cell any more.
    """
    if bool(store) == (data_dir is not None):
        raise BadSetting("the store is not known, or known twice: give --store URL, or --data-dir FOLDER")
    url, name = one_cell(store, cell) if data_dir is None else ("", cell or "main")
    asyncio.run(_migrate(url, data_dir, name, batch=batch, yes=yes, json=json))


async def _migrate(store: str, data_dir: Path | None, cell: str, *, batch: int, yes: bool, json: bool) -> None:
    from dhsched.store.keys import SCHEMA
    from dhsched.store.link.address import parse_address
    from dhsched.store.migrations import run
    from dhsched.store.server.embedded import Embedded

    def tell(at: run.Progress) -> None:
        typer.echo(f"schema {at.source} to {at.target}: {at.done} of {at.total} lives", err=True)

    async with AsyncExitStack() as stack:
        if data_dir is None:
            address = parse_address(store)
        else:
            address = (await stack.enter_async_context(Embedded(data_dir))).address
        before = await run.read_schema(address, cell)
        if before != str(SCHEMA) and not yes:
            typer.echo(f"This brings cell {cell} from schema {before} to {SCHEMA}, for good.", err=True)
            typer.confirm("Is there a backup, and migrate?", abort=True, err=True)
        done = await run.migrate(address, cell, batch=batch, tell=tell)
    lives = max((each.total for each in done), default=0)
    show({"cell": cell, "schema_before": before, "schema": str(SCHEMA), "lives_migrated": lives}, json)


def _next(header: Any) -> str:
    """Return what to do after a restore."""
    from dhsched.store.keys import SCHEMA

    if header.schema != SCHEMA:
        return f"the backup is of schema {header.schema}: run `dhsched store migrate --cell {header.cell}` next"
    return "start the services now; `dhsched recoveries` lists the lives that still have no Worker"


def _told(header: Any) -> dict[str, Any]:
    """Return what is shown of a backup's header."""
    return {"cell": header.cell, "taken": moment(header.taken_at_ms), "written_by": header.version, "term": header.term}


def summary(store: dict[str, Any]) -> dict[str, str]:
    """Return what stands above the tables: names and values."""
    on_disk = {"": "unknown", "no": "nothing: a restart loses everything"}.get(store["appendonly"], store["appendonly"])
    calls = sum(each["calls"] for each in store["losses"])
    return {
        "store": f"{store['address']}, {store['server']}",
        "home": f"{store['home']}, position {store['pos']}, term {store['term']}",
        "on_disk": on_disk,
        "replicas": str(len(store["replicas"])) if store["replicas"] else "none: what the primary loses is lost",
        "settled": settled(store),
        "lost": f"{calls} calls that {store['by']} was told of" if calls else f"nothing that {store['by']} knows of",
    }


def settled(store: dict[str, Any]) -> str:
    """Return whether answers wait for replicas."""
    if store.get("unsettled"):
        return str(store["unsettled"])
    if store.get("settled_by"):
        return f"yes: {store['settled_by']} replicas have what anybody is told"
    return "no: a failover may lose what was told (replicas=N in the store's URL)"
