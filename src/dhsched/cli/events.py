"""`dhsched events`: list the events of the fleet, or follow them."""

from __future__ import annotations

import json as json_
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, seconds_of, show, with_cell
from dhsched.cli.tables import moment, one_line, readable, text
from dhsched.errors import BadValue

Wanted = Callable[[dict[str, Any]], bool]
PAGE = 1_000  # Events of one request.
COLUMNS = ("time", "kind", "worker", "live", "numbers")


def events(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Number of events, the latest ones.")] = 100,
    after: Annotated[str | None, typer.Option(help="Event id; show only later events.")] = None,
    since: Annotated[str | None, typer.Option(help="Only events of this last time, like 90s, 10m or 2h.")] = None,
    live: Annotated[str | None, typer.Option(help="Only events of this live.")] = None,
    worker: Annotated[str | None, typer.Option(help="Only events of this Worker: a WorkerID, or a name.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only events of this kind. May be repeated.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Also print new events, until interrupted.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """List the events of the fleet, the latest last."""
    if since is not None and after is not None:
        raise BadValue("--since and --after were both given; give one of them")
    if since is not None:
        after = str(int((time.time() - seconds_of(since, "--since")) * 1_000))

    def wanted(event: dict[str, Any]) -> bool:
        of_worker = worker in (None, event["worker"], event["worker"].partition("#")[0])
        return live in (None, event["live_id"]) and of_worker and (not kind or event["kind"] in kind)

    server = Server(url)
    if follow:
        import asyncio  # Late: a list needs no event loop.

        asyncio.run(_follow(server, {"limit": limit, "after": after}, wanted, json))
        return
    if live is None and worker is None and not kind:
        document = server.call("GET", "events", query={"limit": limit, "after": after})
    else:
        document = _search(server, after or "0", wanted, limit)
    rows = [row(event) for event in document["events"]]
    columns = with_cell(COLUMNS, rows)
    show(document, json, columns, rows, least=(*columns[len(COLUMNS) :], "numbers"), cut="numbers")


def _search(server: Server, after: str, wanted: Wanted, limit: int) -> dict[str, Any]:
    """Return the latest `limit` events that are wanted, of all after the cursor. The log is bounded, so this ends."""
    found: list[dict[str, Any]] = []
    last = None
    while (page := server.call("GET", "events", query={"limit": PAGE, "after": after}))["events"]:
        found = [*found, *filter(wanted, page["events"])][-limit:]
        after = last = page["last"]
        if len(page["events"]) < PAGE:
            break
    return {"events": found, "last": last}


async def _follow(server: Server, query: dict[str, Any], wanted: Wanted, json: bool) -> None:
    async for event in server.events("events", query=query):
        if wanted(event.data):
            typer.echo(json_.dumps(event.data) if json else line(event.data))


def row(event: dict[str, Any]) -> dict[str, str]:
    numbers = "  ".join(f"{name}={text(value)}" for name, value in readable(event["numbers"]).items())
    live = event["live_id"]
    return {**event, "time": moment(event["at_ms"]), "live": live, "numbers": numbers}


def line(event: dict[str, Any]) -> str:
    told = row(event)
    return one_line("  ".join(told[column] for column in (*COLUMNS, "cell") if told.get(column)))
