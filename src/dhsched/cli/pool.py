"""`dhsched pool ...`: Pools and how lives are spread over their Workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show

app = typer.Typer(help="Pools: list, look at, put, remove.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The Pool's name.")]
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
    """Every Pool."""
    document = Server(url).call("GET", "pools")
    rows = [{**pool["config"], **pool, "barred": barred(pool)} for pool in document["pools"]]
    show(document, json, COLUMNS, rows, least=LEAST)


@app.command()
def get(name: Name, json: Json = False, url: Url = URL) -> None:
    """One Pool."""
    document = Server(url).call("GET", "pools", name)
    own = {key: document[key] for key in document if key != "config"}
    show(document if json else {**own, "barred": barred(document), **document["config"]}, json)


@app.command()
def put(
    name: Name,
    gpu_class: Annotated[str | None, typer.Option(help="Class of GPU.")] = None,
    region: Annotated[str | None, typer.Option(help="Region.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="A label; may be repeated.")] = None,
    priority: Annotated[int | None, typer.Option(help="0 is tried first.")] = None,
    tier_workers_min: Annotated[int | None, typer.Option(help="Least Workers in the bottom tier.")] = None,
    tier_divisor: Annotated[int | None, typer.Option(help="The tier is N / this, if that is more.")] = None,
    tau_slots: Annotated[int | None, typer.Option(help="How far above the emptiest Worker it reaches.")] = None,
    candidates_max: Annotated[int | None, typer.Option(help="Candidates of one placement.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="emptiest, bottom-tier or exact, for lives that try it first.")
    ] = None,
    rebalance: Annotated[str | None, typer.Option(help="off, advise or act.")] = None,
    rebalance_spread_pct: Annotated[int | None, typer.Option(help="How uneven it must be, in % of capacity.")] = None,
    rebalance_moves_max: Annotated[int | None, typer.Option(help="Lives moved at a time.")] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Make or replace a Pool, whole: what is left out gets its default."""
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
    """How even a Pool is, and which lives would move to make it so."""
    document = Server(url).call("GET", "pools", name, "rebalance")
    if not json:
        show({key: value for key, value in document.items() if key not in ("workers", "advice")}, False)
    show(document, json, ("source", "target", "lives"), document["advice"])


@app.command()
def rm(
    name: Name,
    force: Annotated[bool, typer.Option(help="Even if Workers or DigitalIDs use it.")] = False,
    url: Url = URL,
) -> None:
    """Remove a Pool that nothing uses."""
    Server(url).call("DELETE", "pools", name, query={"force": "1" if force else None})


def barred(pool: Mapping[str, Any]) -> str:
    """The Workers of a Pool that take nothing new, in words."""
    return ", ".join(
        f"{some['workers']} {reason} ({some['capacity']} slots)" for reason, some in pool["barred"].items()
    )
