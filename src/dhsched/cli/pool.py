"""`dhsched pool ...`: list, show, put and remove Pools, and show how lives are spread over their Workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, all_pages, lifetimes_of, seconds_of, show
from dhsched.errors import DhschedError, Refused

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

POLL_S = 2.0  # Time between two reads of a Pool that is being evened out.
EVEN_OUT_S = 15  # A Pool is evened out for this long after the last request.
MOVING_MAX = 1_000  # More lives that are being moved are not counted.
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
    rebalance: Annotated[str | None, typer.Option(help="Rebalancing: off, advise or act. [default: advise]")] = None,
    rebalance_spread_pct: Annotated[
        int | None, typer.Option(help="Spread from which lives are moved, in % of capacity.")
    ] = None,
    rebalance_moves_max: Annotated[int | None, typer.Option(help="Most lives moved at a time.")] = None,
    starts_create_max: Annotated[int | None, typer.Option(help="Most lives starting on a Worker at once.")] = None,
    starts_recover_max: Annotated[int | None, typer.Option(help="The same for lives that recover.")] = None,
    cutovers_max: Annotated[int | None, typer.Option(help="Most lives moving away from a Worker at once.")] = None,
    boundary_wait_s: Annotated[
        float | None, typer.Option(help="Time that a drained live waits for a boundary, in seconds.")
    ] = None,
    idle: Annotated[
        str | None, typer.Option(metavar="TIME", help="Longest time of a live without input, like 30m, or none.")
    ] = None,
    longest: Annotated[
        str | None, typer.Option("--max", metavar="TIME", help="Longest age of a live, like 4h, or none.")
    ] = None,
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
        "starts_create_max": starts_create_max,
        "starts_recover_max": starts_recover_max,
        "cutovers_max": cutovers_max,
        "boundary_wait_s": boundary_wait_s,
    }
    body = {key: value for key, value in given.items() if value is not None} | lifetimes_of(idle, longest)
    show(Server(url).call("PUT", "pools", name, body=body), json)


@app.command()
def rebalance(
    name: Name,
    now: Annotated[
        bool,
        typer.Option("--now", help="Even out the Pool now, at boundaries, and wait; its setting stays as it is."),
    ] = False,
    timeout: Annotated[str, typer.Option(help="Time to wait with --now, like 90s or 10m; then exit code 1.")] = "10m",
    json: Json = False,
    url: Url = URL,
) -> None:
    """Show the spread of a Pool's loads, and how many lives would move to even it out."""
    document = Server(url).call("GET", "pools", name, "rebalance")
    if now and document["lives"]:
        document = even_out(url, name, seconds_of(timeout, "--timeout"))
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


def even_out(url: str, name: str, wait_s: float) -> dict[str, Any]:
    """Have Dispatch even out the Pool until it is even, and return the last advice. The request lasts EVEN_OUT_S and is
    repeated, so a verb that is killed changes nothing for long. It is withdrawn when no move is under way any more: a
    move without a reason expires, and its live stays."""
    server = Server(url)
    ends, said = time.monotonic() + wait_s, ""
    try:
        while True:
            document = server.call("POST", "pools", name, "rebalance", body={"seconds": EVEN_OUT_S})
            moving = len(all_pages(url, "lives", "lives", {"pool": name}, MOVING_MAX, lambda row: row["moving_to"]))
            if not document["lives"] and not moving:
                break
            left = f"{moving} lives are being moved, {document['lives']} more are to move"
            if time.monotonic() >= ends:
                raise DhschedError(f"Pool {name} is not even after {wait_s:g} s: {left}")
            if left != said:
                typer.echo(left, err=True)
            said = left
            time.sleep(POLL_S)
    finally:
        document = server.call("POST", "pools", name, "rebalance", body={"seconds": 0})
    return dict(document)


def uneven(server: Server, pools: Iterable[str]) -> list[str]:
    """Return a line of advice for each Pool whose lives could be spread more evenly; none without the right to know."""
    lines = []
    for pool in pools:
        try:
            lives = server.call("GET", "pools", pool, "rebalance")["lives"]
        except Refused:
            continue
        if lives:
            number = "one live" if lives == 1 else f"{lives} lives"
            lines.append(f"Pool {pool} is uneven: {number} would move; dhsched pool rebalance {pool} --now")
    return lines


def barred(pool: Mapping[str, Any]) -> str:
    """Return a summary of the Pool's Workers that take no new lives, by reason."""
    return ", ".join(
        f"{some['workers']} {reason} ({some['capacity']} slots)" for reason, some in pool["barred"].items()
    )
