"""Events of one live, for its application: `GET /v1/lives/{live_id}/events`, server-sent.

    event: acked
    data: {"live_id": "demo-1", "epoch": 1, "acked": 7}

The events are committed, claimed, released, acked, dropped (with its cause), interrupted, stalled, ended; said: a
viewer with an identity sent an item; and emitted: a message of the live's runtime. A watcher's record is read a few
times a second, and each change is sent as an event: two items acked between two readings are one event with the later
cursor. A watcher first receives the live's present state, the last items of viewers and the messages that are kept, so
a new connection misses only intermediate cursors. An emitted event has an id; a watcher that sends it as Last-Event-ID
gets only later messages. A message that was stored through this controller wakes its watchers at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from aiohttp import web

from dhsched.errors import DhschedError, StoreError
from dhsched.infer.context import InferContext, Inputs
from dhsched.input_routes import WATCH_LIVE
from dhsched.ownership.state import Row
from dhsched.store.records.lives import Message, ViewerItem
from dhsched.tasks import is_set_within
from dhsched.types import live_key
from dhsched.web import Problem, caller_of
from dhsched.web.event_stream import send_events
from dhsched.web.problems import problem_of

WATCH_MIN_S = 0.02  # Between two readings for one watcher, however many messages there are.
_object = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Observed:
    """One reading of a live's record. `past` has the generations between the reading before and this one, `said` the
    items of viewers that were noted in between, up to the cursor `said_until`, `emits` the messages of runtimes."""

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
    interrupted: tuple[int, int] = (0, 0)
    emits: tuple[Message, ...] = ()
    emitted: tuple[int, int] = (0, 0)
    """The messages between the reading before and this one; epoch and n of the last one."""


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
    if now.interrupted != before.interrupted:
        seq, after = now.interrupted
        yield "interrupted", {"epoch": now.epoch, "seq": seq, "after": after}
    if now.released > before.released and now.state != "ended":
        yield "released", {"epoch": now.epoch, "released": now.released}
    if now.acked > before.acked and now.state != "ended":
        yield "acked", {"epoch": now.epoch, "acked": now.acked}
    for message in now.emits:
        data = _object.decode(message.data)
        yield "emitted", {"epoch": message.epoch, "n": message.n, "name": message.name, "data": data}
    if now.state == "ended" and before.state != "ended":
        yield "ended", {"epoch": now.epoch, "acked": now.acked}


def routes(inputs: Inputs) -> list[web.RouteDef]:
    async def serve(request: web.Request) -> web.StreamResponse:
        caller = caller_of(request)
        with ExitStack() as counted:
            try:
                live_id = request.match_info["live_id"]
                live = live_key(caller.tenant, live_id)
                context = inputs.of(live)
                counted.enter_context(context.connections.open_stream(caller.tenant))
                seen = read_id(request.headers.get("Last-Event-ID", ""))
                first = await read(context, live, Observed(emitted=seen))
                if first is None:
                    raise Problem("NOT_FOUND", f"live {live_id} does not exist; create it first")
            except DhschedError as error:
                return problem_of(error).response()
            with context.service.open_while(caller, request):
                return await send_events(request, readings(context, live_id, live, first))

    return [WATCH_LIVE.raw_route(serve)]


async def readings(context: InferContext, live_id: str, live: str, now: Observed) -> AsyncIterator[list[bytes]]:
    """Yield the events of each reading, `now` first, until the live has ended or this controller stops."""
    before = Observed()
    with context.emits.watch(live) as woken:
        while True:
            yield [encoded(event, {"live_id": live_id, **data}) for event, data in changes(before, now)]
            if now.state == "ended" or context.service.stopping:
                return
            await asyncio.sleep(min(WATCH_MIN_S, context.settings.watch_s))
            await is_set_within(max(0.0, context.settings.watch_s - WATCH_MIN_S), woken)
            woken.clear()
            before, now = now, await next_reading(context, live, now)


async def next_reading(context: InferContext, live: str, before: Observed) -> Observed:
    """Return the next reading, or `before` while the store cannot be read. A live without a record has ended."""
    try:
        return await read(context, live, before) or replace(before, state="ended", said=(), emits=())
    except StoreError:
        return replace(before, said=(), emits=())


async def read(context: InferContext, live: str, before: Observed) -> Observed | None:
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
    found = Observed(**progress._asdict(), past=past, said=tuple(item for _, item in said), said_until=until)
    emits: list[Message] = []
    if progress.emitted > before.emitted:
        emits = await lives.emits_after(live, before.emitted)
    # A store that has lost its last messages has an earlier one than was sent: the later ones are not sent again.
    last = emits[-1][:2] if emits else max(before.emitted, progress.emitted)
    return replace(found, emits=tuple(emits), emitted=last)


def read_id(text: str) -> tuple[int, int]:
    """Return epoch and n of the message in a Last-Event-ID; zeros, before every message, if it names none."""
    named = re.fullmatch(r"([0-9]{1,16})\.([0-9]{1,16})", text)
    return (int(named[1]), int(named[2])) if named else (0, 0)


def encoded(event: str, data: dict[str, Any]) -> bytes:
    number = f"id: {data['epoch']}.{data['n']}\n".encode() if event == "emitted" else b""
    return number + b"event: " + event.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
