"""Events of one live, for its application: `GET /v1/lives/{live_id}/events`, server-sent.

    event: acked
    data: {"live_id": "demo-1", "epoch": 1, "acked": 7}

The events are committed, claimed, released, acked, dropped (with its cause), stalled, ended, and said: a viewer with an
identity sent an item. A watcher's record is read a few times a second, and each change is sent as an event: two items
acked between two readings are one event with the later cursor. A watcher first receives the live's present state and
the last items of viewers, so one that reconnects misses only intermediate cursors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from aiohttp import web

from dhsched.errors import DhschedError, StoreError
from dhsched.infer.context import InferContext
from dhsched.ownership.state import Row
from dhsched.store.records.lives import ViewerItem
from dhsched.types import live_key
from dhsched.web import Problem, caller_of
from dhsched.web.event_stream import send_events
from dhsched.web.problems import problem_of


@dataclass(frozen=True, slots=True)
class Observed:
    """One reading of a live's record. `past` has the generations between the reading before and this one, `said` the
    items of viewers that were noted in between, up to the cursor `said_until`."""

    epoch: int = 0
    worker: str = ""
    cause: str = ""
    claimed: bool = False
    state: str = "open"
    released: int = 0
    acked: int = 0
    dropped_interrupt: int = 0
    dropped_end: int = 0
    dropped_poison: int = 0
    stalled: bool = False
    past: tuple[Row, ...] = ()
    said: tuple[ViewerItem, ...] = ()
    said_until: str = "0-0"


def changes(before: Observed, now: Observed) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events between two readings, in an order in which they can have happened."""
    claimed_before = before.claimed
    if now.stalled and not before.stalled:
        yield "stalled", {"epoch": now.epoch, "worker": now.worker}
    if now.epoch != before.epoch:
        for row in now.past:
            yield "committed", {"epoch": row.epoch, "worker": row.worker, "cause": row.cause}
            if row.claimed_at:
                yield "claimed", {"epoch": row.epoch, "worker": row.worker}
        yield "committed", {"epoch": now.epoch, "worker": now.worker, "cause": now.cause}
        claimed_before = False
    if now.claimed and not claimed_before:
        yield "claimed", {"epoch": now.epoch, "worker": now.worker}
    for item in now.said:
        yield "said", {"identity": item.identity, "kind": item.kind, "seq": item.seq}
    for cause in ("interrupt", "poison", "end"):
        dropped = getattr(now, f"dropped_{cause}") - getattr(before, f"dropped_{cause}")
        if dropped > 0:
            yield "dropped", {"epoch": now.epoch, "cause": cause, "items": dropped}
    if now.released > before.released and now.state != "ended":
        yield "released", {"epoch": now.epoch, "released": now.released}
    if now.acked > before.acked and now.state != "ended":
        yield "acked", {"epoch": now.epoch, "acked": now.acked}
    if now.state == "ended" and before.state != "ended":
        yield "ended", {"epoch": now.epoch, "acked": now.acked}


def routes(context: InferContext) -> list[web.RouteDef]:
    async def serve(request: web.Request) -> web.StreamResponse:
        caller = caller_of(request)
        with ExitStack() as counted:
            try:
                live_id = request.match_info["live_id"]
                live = live_key(caller.tenant, live_id)
                counted.enter_context(context.open_stream(caller.tenant))
                first = await look(context, live, Observed())
                if first is None:
                    raise Problem("NOT_FOUND", f"live {live_id} does not exist; create it first")
            except DhschedError as error:
                return problem_of(error).response()
            with context.service.open_while(caller, request):
                return await send_events(request, readings(context, live_id, live, first))

    return [web.get("/v1/lives/{live_id}/events", serve, name="watch_live")]


async def readings(context: InferContext, live_id: str, live: str, now: Observed) -> AsyncIterator[list[bytes]]:
    """Yield the events of each reading, `now` first, until the live has ended or this controller stops."""
    before = Observed()
    while True:
        yield [encoded(event, {"live_id": live_id, **data}) for event, data in changes(before, now)]
        if now.state == "ended" or context.service.stopping:
            return
        await asyncio.sleep(context.settings.watch_s)
        before, now = now, await next_look(context, live, now)


async def next_look(context: InferContext, live: str, before: Observed) -> Observed:
    """Return the next reading, or `before` while the store cannot be read. A live without a record has ended."""
    try:
        return await look(context, live, before) or replace(before, state="ended", said=())
    except StoreError:
        return replace(before, said=())


async def look(context: InferContext, live: str, before: Observed) -> Observed | None:
    lives = context.records.lives
    progress, said = await asyncio.gather(lives.progress(live), lives.said_after(live, before.said_until))
    if progress is None:
        return None
    past: tuple[Row, ...] = ()
    if before.epoch and progress.epoch != before.epoch:
        record = await lives.get(live)
        history = record.history if record is not None else ()
        past = tuple(row for row in history if before.epoch < row.epoch < progress.epoch)
    until = said[-1][0] if said else before.said_until
    return Observed(**progress._asdict(), past=past, said=tuple(item for _, item in said), said_until=until)


def encoded(event: str, data: dict[str, Any]) -> bytes:
    return b"event: " + event.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
