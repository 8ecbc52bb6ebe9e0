"""`dhsched top`: the state of the fleet every second: Pools and Workers with their loads, rates, events, waiting lives,
and what to do about a Pool that is uneven."""

from __future__ import annotations

import json as json_
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dhsched.cli.pool import barred, uneven
from dhsched.cli.remote import URL, Json, Server, Url
from dhsched.cli.tables import clock
from dhsched.errors import DhschedError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

SHOWN = ("pools", "workers", "recoveries", "events", "advice", "counters")
WORKERS_SHOWN = 20  # More Workers are only counted; on a terminal, those that its height has no line for.
EVENTS_SHOWN = 8  # The latest ones.
ADVISED_MAX = 20  # Of more Pools, only the first are checked for their spread.
OTHER_LINES = 16  # Lines of the screen that are not for rows of Pools, Workers, events and recoveries.
RECOVERIES_SHOWN = 10  # More waiting lives are only counted.
BAR = 20  # Columns of a waterline.
COUNTS = ("load", "capacity", "free", "workers", "placeable")
PIPE_COLUMNS = 1_000  # Width of a line in a pipe, wide enough that no cell is wrapped.
IDS = ("pool", "worker", "live")  # Columns whose cells are never wrapped.
RATES: dict[str, tuple[str, dict[str, str]]] = {
    "creates/s": ("dhsched_places_total", {"cause": "create", "outcome": "Committed"}),
    "recoveries/s": ("dhsched_places_total", {"cause": "recover", "outcome": "Committed"}),
    "refusals/s": ("dhsched_refusals_total", {}),
    "requests/s": ("dhsched_requests_total", {}),
    "Workers lost": ("dhsched_workers_lost_total", {}),
}


@dataclass(slots=True)
class Sample:
    """The state of the fleet at one time, `at`, by the clock of this process."""

    at: float
    pools: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    recoveries: list[dict[str, Any]]
    events: list[dict[str, Any]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)


def top(
    every: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between two refreshes.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the state once and exit.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Show Pools, Workers, rates of one replica, events, and lives that wait for a Worker, until Ctrl-C."""
    server = Server(url)  # One for all refreshes: it keeps calling the replica whose counters were read first.
    first = read(server)
    if json:
        typer.echo(json_.dumps({name: getattr(first, name) for name in SHOWN}))
        return
    from rich.console import Console
    from rich.live import Live as Screen

    if not (console := Console()).is_terminal:
        console = Console(width=PIPE_COLUMNS)
    if once or not console.is_terminal:
        console.print(shown(first, None))
        return
    before, trouble = first, ""
    with Screen(shown(first, None, height=console.height), console=console, screen=True, auto_refresh=False) as screen:
        try:
            while True:
                time.sleep(every)
                try:
                    now, trouble = read(server), ""
                except DhschedError as error:
                    now, trouble = before, str(error)  # Dispatch may come back: show the last state with the error.
                screen.update(shown(now, before, trouble, console.height), refresh=True)
                before = now
        except KeyboardInterrupt:
            return


def read(server: Server) -> Sample:
    pools = server.call("GET", "pools")["pools"]
    return Sample(
        at=time.monotonic(),
        pools=pools,
        workers=server.call("GET", "workers", query={"limit": 1_000})["workers"],
        recoveries=server.call("GET", "recoveries", query={"limit": 100})["recoveries"],
        events=server.call("GET", "events", query={"limit": EVENTS_SHOWN})["events"],
        advice=uneven(server, [pool["name"] for pool in pools[:ADVISED_MAX]]),
        counters=rates_of(server.text("/metrics")),
    )


def rates_of(exposition: str) -> dict[str, float]:
    """Return the sums of the counters that `RATES` names, from a page of metrics."""
    from dhsched.client.metrics import total  # Late: other verbs need no metrics.

    return {name: total(exposition, series, **labels) for name, (series, labels) in RATES.items()}


def shown(now: Sample, before: Sample | None, trouble: str = "", height: int | None = None) -> Group:
    """Return what a screen of `height` lines shows; without a height, as many rows as there may be."""
    from rich.console import Group
    from rich.text import Text

    lines = Text(_rates(now, before))
    if trouble:
        lines.append(f"\n{trouble}", style="bold red")
    for advice in now.advice:
        lines.append(f"\n{advice}", style="yellow")
    others = len(now.pools) + len(now.events) + min(len(now.recoveries), RECOVERIES_SHOWN) + len(now.advice)
    rows = WORKERS_SHOWN if height is None else max(3, height - OTHER_LINES - others)
    waiting = _recoveries(now.recoveries) if now.recoveries else Text("0 lives wait for a Worker", style="table.title")
    tables = (_pools(now.pools), _workers(now.workers, rows), waiting, _events(now.events))
    return Group(lines, *(part for each in tables for part in (Text(), each)))


def _rates(now: Sample, before: Sample | None) -> str:
    return "   ".join(f"{name} {_rate(name, total, now, before)}" for name, total in now.counters.items())


def _rate(name: str, total: float, now: Sample, before: Sample | None) -> str:
    if not name.endswith("/s"):
        return f"{total:.0f}"
    if before is None or now.at <= before.at:
        return "-"
    # A replica that was replaced behind a load balancer counts from 0: no negative rates.
    return f"{max(0.0, total - before.counters.get(name, 0.0)) / (now.at - before.at):.1f}"


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    heading = Text(title, style="table.title", no_wrap=True, overflow="ignore")  # A narrow table must not wrap it.
    made = Table(title=heading, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column.upper(), no_wrap=column in IDS)
    return made


def _pools(pools: list[dict[str, Any]]) -> Table:
    made = _table(f"{len(pools)} Pools", "pool", "waterline", "", *COUNTS, "barred")
    for pool in pools:
        share = waterline(pool)
        made.add_row(
            pool["name"],
            bar(share),
            f"{share:.0%}",
            *(str(pool[name]) for name in COUNTS),
            barred(pool) or "-",
        )
    return made


def bar(share: float) -> str:
    """Return a bar for a share of slots that are taken, in the colour of how full that is."""
    style = "red" if share >= 0.95 else "yellow" if share >= 0.8 else "green"
    return f"[{style}]{'█' * round(share * BAR):<{BAR}}[/]"


def waterline(pool: Mapping[str, Any]) -> float:
    """Return the taken share of a Pool's placeable slots; a Pool without any counts as full, as in placement."""
    return min(1.0, pool["load"] / pool["capacity"]) if pool["capacity"] else 1.0


def _workers(workers: list[dict[str, Any]], rows: int) -> Table:
    """Return the table of Workers: those that are not ready first, then the fullest."""
    ranked = sorted(workers, key=lambda w: (w["status"] == "ready", -w["load"] / max(1, w["capacity"]), w["worker"]))
    more = f", {len(ranked) - rows} more not shown" if len(ranked) > rows else ""
    made = _table(f"{len(workers)} Workers{more}", "worker", "pool", "status", "lives", "", "starting")
    for row in ranked[:rows]:
        style = "" if row["status"] == "ready" else "bold red"
        share = min(1.0, row["load"] / row["capacity"]) if row["capacity"] else 1.0
        cells = (row["worker"], row["pool"], row["status"], bar(share), f"{row['load']}/{row['capacity']}")
        made.add_row(*cells, str(row["starting"]), style=style)
    return made


def _events(events: list[dict[str, Any]]) -> Table:
    made = _table("Latest events", "time", "kind", "worker", "live")
    for event in reversed(events):
        made.add_row(clock(event["at_ms"]), event["kind"], event["worker"] or "-", event["live_id"] or "-")
    return made


def _recoveries(rows: list[dict[str, Any]]) -> Table:
    made = _table(f"{len(rows)}{'+' if len(rows) == 100 else ''} lives wait for a Worker", "live", "need", "tries")
    for row in rows[:RECOVERIES_SHOWN]:
        made.add_row(*(str(row.get(name, "-")) for name in ("live_id", "need", "tries")))
    return made
