"""`dhsched pool ...`: list, show, put and remove Pools, and show how lives are spread over their Workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show

app = typer.Typer(help="Pools: list, show, put, rebalance, remove.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the Pool.")]
COLUMNS = (
    "name",
    "priority",
    "gpu_class",
    "region",
    "labels",
    "workers",
    "placeable",
    "load",
    "capacity",
    "free",
    "barred",
)
LEAST = ("labels", "region", "gpu_class", "priority", "placeable", "workers", "capacity", "load", "free", "barred")


@app.command()
def ls(json: Json = False, url: Url = URL) -> None:
    """List all Pools."""
    document = Server(url).call("GET", "pools")
    rows = [{**pool["config"], **pool, "barred": barred(pool)} for pool in document["pools"]]
    show(document, json, COLUMNS, rows, least=LEAST)


@app.command()
def get(name: Name, json: Json = False, url: Url = URL) -> None:
    """Show one Pool."""
    document = Server(url).call("GET", "pools", name)
    own = {key: document[key] for key in document if key != "config"}
    show(document if json else {**own, "barred": barred(document), **document["config"]}, json)


@app.command()
def put(
    name: Name,
    gpu_class: Annotated[str | None, typer.Option(help="GPU class.")] = None,
    region: Annotated[str | None, typer.Option(help="Region.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Label. May be repeated.")] = None,
    priority: Annotated[int | None, typer.Option(help="Priority; 0 is tried first.")] = None,
    tier_workers_min: Annotated[int | None, typer.Option(help="Fewest Workers in the bottom tier.")] = None,
    tier_divisor: Annotated[int | None, typer.Option(help="Divisor; the tier has at least Workers / divisor.")] = None,
    tau_slots: Annotated[
        int | None, typer.Option(help="Slots above the emptiest Worker that the tier includes.")
    ] = None,
    candidates_max: Annotated[int | None, typer.Option(help="Most candidates of one placement.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="Policy for lives that try this Pool first: emptiest, bottom-tier or exact.")
    ] = None,
    rebalance: Annotated[str | None, typer.Option(help="Rebalancing: off, advise or act.")] = None,
    rebalance_spread_pct: Annotated[
        int | None, typer.Option(help="Spread from which lives are moved, in % of capacity.")
    ] = None,
    rebalance_moves_max: Annotated[int | None, typer.Option(help="Most lives moved at a time.")] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Create a Pool or replace it as a whole: options that are not given get their defaults."""
    given: dict[str, Any] = {
        "gpu_class": gpu_class,
        "region": region,
        "labels": label,
        "priority": priority,
        "tier_workers_min": tier_workers_min,
        "tier_divisor": tier_divisor,
        "tau_slots": tau_slots,
        "candidates_max": candidates_max,
        "policy": policy,
        "rebalance": rebalance,
        "rebalance_spread_pct": rebalance_spread_pct,
        "rebalance_moves_max": rebalance_moves_max,
    }
    body = {key: value for key, value in given.items() if value is not None}
    show(Server(url).call("PUT", "pools", name, body=body), json)


@app.command()
def rebalance(name: Name, json: Json = False, url: Url = URL) -> None:
    """Show the spread of a Pool's loads, and how many lives would move to even it out."""
    document = Server(url).call("GET", "pools", name, "rebalance")
    if not json:
        show({key: value for key, value in document.items() if key not in ("workers", "advice")}, False)
    show(document, json, ("source", "target", "lives"), document["advice"])


@app.command()
def rm(
    name: Name,
    force: Annotated[bool, typer.Option(help="Remove it even if Workers or DigitalIDs use it.")] = False,
    url: Url = URL,
) -> None:
    """Remove a Pool that nothing uses."""
    Server(url).call("DELETE", "pools", name, query={"force": "1" if force else None})


def barred(pool: Mapping[str, Any]) -> str:
    """Return a summary of the Pool's Workers that take no new lives, by reason."""
    return ", ".join(
        f"{some['workers']} {reason} ({some['capacity']} slots)" for reason, some in pool["barred"].items()
    )
