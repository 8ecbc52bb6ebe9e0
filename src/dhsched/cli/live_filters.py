"""The filters of `dhsched live ls` and `dhsched live end`, and the requests that end many lives."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dhsched.cli.remote import Server, seconds_of

State = Annotated[str | None, typer.Option(help="State of the lives: open, closing or ended.")]
WorkerFilter = Annotated[str | None, typer.Option(help="Worker that the lives are on.")]
InPool = Annotated[str | None, typer.Option(help="Pool that the lives are in.")]
Shown = Annotated[str | None, typer.Option(help="DigitalID that the lives show.")]
Labels = Annotated[list[str] | None, typer.Option("--label", help="Label that the lives have. May be repeated.")]
Older = Annotated[str | None, typer.Option("--age", metavar="TIME", help="Least age of the lives, like 4h.")]
Idle = Annotated[str | None, typer.Option("--idle", metavar="TIME", help="Least time without input, like 30m.")]
Stalled = Annotated[bool, typer.Option("--stalled", help="Only lives that are stalled.")]


def filters_of(
    state: str | None,
    worker: str | None,
    pool: str | None,
    digital_id: str | None,
    label: list[str] | None,
    age: str | None,
    idle: str | None,
    stalled: bool,
) -> dict[str, Any]:
    """Return the filters that were given, as the API takes them."""
    given: dict[str, Any] = {
        "state": state,
        "worker": worker,
        "pool": pool,
        "digital_id": digital_id,
        "label": ",".join(label) if label else None,
        "age_s": None if age is None else seconds_of(age, "--age"),
        "idle_s": None if idle is None else seconds_of(idle, "--idle"),
        "stalled": True if stalled else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def as_query(filters: dict[str, Any]) -> dict[str, Any]:
    """Return filters as parameters of a URL."""
    return {name: "true" if value is True else value for name, value in filters.items()}


def end_matching(server: Server, asked: dict[str, Any], most: int) -> dict[str, Any]:
    """End up to `most` lives that match, and return their ids and whether further lives may match. A request whose
    answer is lost is not repeated: the repeated request would end other lives."""
    from dhsched.client.models.lives import ENDS_MAX  # Late: the other verbs need no documents of the API.

    ended: list[str] = []
    left_out: set[str] = set()
    after: str | None = None
    more = most > 0
    while more and len(ended) < most:
        body = {**asked, "limit": min(ENDS_MAX, most - len(ended)), **({} if after is None else {"after": after})}
        page = server.call("POST", "end-lives", body=body)
        ended += page["live_ids"]
        left_out |= {*page.get("cells_left_out", ())}
        after, more = page["next"], page["more"]
    if left_out:
        typer.echo(f"without cell {', '.join(sorted(left_out))}, which cannot be asked now", err=True)
    return {"live_ids": ended, "more": more}
