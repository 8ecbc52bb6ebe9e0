"""`dhsched recoveries`: list the lives that lost their Worker and have no other one yet."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Url, all_pages, show, with_cell
from dhsched.cli.tables import moment

COLUMNS = (
    *("live_id", "need", "unplaceable", "source", "epoch", "since", "tries", "next_look"),
    *("waiting_since", "waiting_for"),
)


def recoveries(
    limit: Annotated[int, typer.Option(min=1, help="Most rows.")] = 1_000,
    json: Json = False,
    url: Url = URL,
) -> None:
    """List the lives that must be placed again or wait for a free slot: why, since when, and their queue position."""
    rows = all_pages(url, "recoveries", "recoveries", {}, limit)
    show({"recoveries": rows}, json, with_cell(COLUMNS, rows), [row(each) for each in rows])


def row(each: dict[str, Any]) -> dict[str, Any]:
    lines = ", ".join(f"{line['pool']} ({line['place']} of {line['of']})" for line in each["waiting_for"])
    return {
        **each,
        "since": moment(each["since_ms"]),
        "next_look": moment(each["next_look_at_ms"]),
        "waiting_since": moment(each["waiting_since_ms"]),
        "waiting_for": lines,
    }
