"""`dhsched store ...`: show the store that Dispatch uses, and begin a new term."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.cli.tables import moment

app = typer.Typer(help="The store: status, new-term.", no_args_is_help=True)

HOMES_SHOWN = 5  # The latest homes in `status`; --json has all.


@app.command()
def status(json: Json = False, url: Url = URL) -> None:
    """Show the store's home and replicas, how far they are behind, and what is known to be lost."""
    store = Server(url).call("GET", "store")
    if json:
        show(store, json)
        return
    show(summary(store), json)
    if store["replicas"]:
        typer.echo("")
        rows = [{**each, "behind": f"{each['behind_bytes']} bytes"} for each in store["replicas"]]
        show(None, json, ("replica", "state", "behind"), [{**row, "replica": row["address"]} for row in rows])
    typer.echo("")
    homes = [{**each, "since": moment(each["since_ms"])} for each in store["homes"][-HOMES_SHOWN:]]
    show(None, json, ("home", "pos", "since"), homes)
    if store["losses"]:
        typer.echo("")
        show(None, json, ("lost_in_home", "told", "kept", "calls"), [lost(each) for each in store["losses"]])


@app.command("new-term")
def new_term(
    reason: Annotated[str, typer.Option(help="Why; the event shows it.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Place every live anew, at once: for a store whose records cannot be trusted any more.

    Every runtime of the cell is stopped and started again, with what its live has saved. A restart or a failover of the
    store does not need this.
    """
    server = Server(url)
    store = server.call("GET", "store")
    lives = sum(pool["load"] for pool in server.call("GET", "pools")["pools"])
    if not yes:
        typer.echo(f"This ends term {store['term']}: about {lives} lives are stopped and placed anew, all at once.")
        typer.confirm("Begin a new term?", abort=True)
    begun = server.call("POST", "store", "new-term", body={"term": store["term"], "reason": reason})
    if json:
        show(begun, json)
    else:
        typer.echo(f"term {begun['term']} has begun; `dhsched recoveries` lists the lives that still have no Worker")


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


def lost(each: dict[str, Any]) -> dict[str, Any]:
    return {**each, "lost_in_home": each["home"]}
