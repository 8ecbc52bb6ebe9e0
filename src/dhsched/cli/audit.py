"""`dhsched audit`: who has asked for which change."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.cli.tables import moment

COLUMNS = ("time", "key", "outcome", "endpoint", "path", "tenant", "address", "request")


def audit(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Number of entries, the latest ones.")] = 100,
    before: Annotated[str | None, typer.Option(help="Entry id; show only earlier entries.")] = None,
    key: Annotated[str | None, typer.Option(help="Id of an API key; show only what was asked with it.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Show only what was asked for this tenant.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="Name of an endpoint, such as drain_worker.")] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """List who has asked for which change, and what came of it; the latest first."""
    query = {"limit": limit, "before": before, "key": key, "tenant": tenant, "endpoint": endpoint}
    document = Server(url).call("GET", "audit", query=query)
    rows = [row(entry) for entry in document["entries"]]
    show(document, json, COLUMNS, rows, least=("request", "address", "tenant"), cut="path")


def row(entry: dict[str, Any]) -> dict[str, str]:
    return {
        "time": moment(entry["at_ms"]),
        "key": entry["key"] or entry["worker"] or "(open)",
        "outcome": entry["code"] or str(entry["status"]),
        "endpoint": entry["endpoint"],
        "path": entry["path"],
        "tenant": entry["tenant"],
        "address": entry["address"],
        "request": entry["request_id"],
    }
