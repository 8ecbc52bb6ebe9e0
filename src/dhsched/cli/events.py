"""`dhsched events`: list the events of the fleet, or follow them."""

from __future__ import annotations

import asyncio
import json as json_
from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.cli.tables import moment, one_line, readable, text

COLUMNS = ("time", "kind", "worker", "live", "numbers")


def events(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Number of events, the latest ones.")] = 100,
    after: Annotated[str | None, typer.Option(help="Event id; show only later events.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Also print new events, until interrupted.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """List the events of the fleet, the latest last."""
    if follow:
        asyncio.run(_follow(Server(url), {"limit": limit, "after": after}, json))
        return
    document = Server(url).call("GET", "events", query={"limit": limit, "after": after})
    rows = [row(event) for event in document["events"]]
    show(document, json, COLUMNS, rows, least=("numbers",), cut="numbers")


async def _follow(server: Server, query: dict[str, Any], json: bool) -> None:
    async for event in server.events("events", query=query):
        typer.echo(json_.dumps(event.data) if json else line(event.data))


def row(event: dict[str, Any]) -> dict[str, str]:
    numbers = "  ".join(f"{name}={text(value)}" for name, value in readable(event["numbers"]).items())
    live = event["live_id"]
    return {**event, "time": moment(event["at_ms"]), "live": live, "numbers": numbers}


def line(event: dict[str, Any]) -> str:
    told = row(event)
    return one_line("  ".join(told[column] for column in COLUMNS if told[column]))
