"""Lives: their records, lists of their names, their dead letters. Nothing here walks the key space: lives are listed
through `lives`, by name, and the lives of a Worker through its slot table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from dhsched.ownership.draft import WAITING_CLASS
from dhsched.ownership.state import Live
from dhsched.store.raw import decode_live, hash_of, is_stalled
from dhsched.store.records.part import Part
from dhsched.store.steps.replies import text
from dhsched.types import OWNED, PRIORITIES, WITH_RUNTIME, Generation, split_tag

SAID_MAX = 64  # Older items of viewers are forgotten.
SAID_TTL_MS = 3_600_000  # After this long without another item, all of a live's are forgotten.


class ViewerItem(msgspec.Struct, frozen=True):
    """An item of a viewer: who sent it, its kind, and its number in the live's input."""

    identity: str
    kind: str
    seq: int


_viewer_item = msgspec.json.Decoder(ViewerItem)


class LiveRow(NamedTuple):
    """The fields of a live in a list."""

    live: str
    digital_id: str
    state: str
    worker: str
    epoch: int
    claimed: bool
    priority: int
    room: str
    pending: int
    cause: str
    committed_at: int
    moving_to: str
    waiting: bool


class Times(NamedTuple):
    """When the current generation was committed, claimed and first acked, by the store's clock; 0 means not yet."""

    epoch: int
    committed_at: int
    claimed_at: int
    first_ack_at: int


class LiveOnWorker(NamedTuple):
    """A live whose current generation is on the Worker, and its move, if it has one."""

    live: str
    epoch: int
    slot: str
    digital_id: str
    immovable: bool
    priority: int
    pending: int
    target: str = ""
    number: int = 0
    expires_at_ms: int = 0
    hold: str = ""
    """Where input stops: an item's number, `next`, or empty while the target prepares."""


class BeforeRecovery(NamedTuple):
    """A live's record before it is placed anew, to find what the commit changes."""

    waited_in: tuple[str, ...]
    waits_since_ms: int
    suspect: bool
    poisoned: int
    lost_at_ms: int
    forgot: bool
    """Whether its generation had items that the store has forgotten."""


class Ingredients(NamedTuple):
    """The parts that a runtime is built from, and the state of its slot."""

    slot: str
    digital_id: str
    room: str
    metadata: bytes
    config: bytes
    saved: bytes


class Progress(NamedTuple):
    """A live's progress, from which an application's events are made."""

    epoch: int
    worker: str
    cause: str
    claimed: bool
    state: str
    released: int
    acked: int
    dropped_interrupt: int
    dropped_end: int
    dropped_poison: int
    stalled: bool


ROW_FIELDS = (
    *("digital_id", "state", "selected", "epoch", "active", "priority", "room", "appended", "acked"),
    *("cause", "committed_at", "move_target", "waits"),
)
MOVE_FIELDS = (
    *("epoch", "selected", "digital_id", "immovable", "priority", "appended", "acked"),
    *("move_target", "move_number", "move_expires", "move_hold"),
)
PROGRESS_FIELDS = (
    *("epoch", "selected", "cause", "active", "state", "released", "acked"),
    *("dropped_interrupt", "dropped_end", "dropped_poison", "stalled"),
)


class LiveRecords(Part):
    """The lives of a cell, by their full name, `tenant/id`."""

    async def get(self, live: str) -> Live | None:
        """Return a live's whole record, without its pending input; None if there is no such live."""
        record, data, history, dead = await asyncio.gather(
            self._call("HGETALL", "live", live),
            self._call("HGETALL", "data", live),
            self._call("GET", "history", live),
            self._call("LRANGE", "dead", live, 0, -1),
        )
        if not record:
            return None
        rest = {"data": {live: data}, "history": {live: history or b""}, "dead": {live: dead}}
        return decode_live(live, hash_of(record), rest)

    # -- lists

    async def due(self, limit: int) -> list[str]:
        """Return lives to look at now, the most urgent class first."""
        return [text(live) for live in await self._run("due", limit, PRIORITIES)]

    async def names(self, tenant: str, after: str, limit: int) -> list[str]:
        """Return a tenant's lives by name, after the id `after`. Names do not change: a walk meets each live once."""
        start = f"({tenant}/{after}" if after else f"[{tenant}/"
        return await self._names_between(start, f"({tenant}0", limit)  # 0 comes right after / in ASCII.

    async def all_names(self, after: str, limit: int) -> list[str]:
        """Return lives of every tenant by full name, after the live `after`."""
        return await self._names_between(f"({after}" if after else "-", "+", limit)

    async def _names_between(self, start: str, stop: str, limit: int) -> list[str]:
        found = await self._call("ZRANGEBYLEX", "lives", "", start, stop, "LIMIT", 0, limit)
        return [text(live) for live in found]

    async def names_on(self, worker: str, tenant: str, after: str, limit: int) -> list[str]:
        """Return like `names` the lives whose current generation is on a Worker."""
        table = hash_of(await self._call("HGETALL", "slots", worker))
        lives = {split_tag(tag)[0] for tag, state in table.items() if text(state) in OWNED}
        first, prefix = f"{tenant}/{after}", f"{tenant}/"
        return sorted(live for live in lives if live.startswith(prefix) and live > first)[:limit]

    async def rows(self, lives: Sequence[str]) -> list[LiveRow]:
        """Return the list rows of these lives; lives that are gone by now are left out."""
        replies = await asyncio.gather(*(self._call("HMGET", "live", live, *ROW_FIELDS) for live in lives))
        return [live_row(live, reply) for live, reply in zip(lives, replies, strict=True) if reply[3]]

    async def generations(self, lives: Sequence[str]) -> dict[str, Generation]:
        """Return the current generation of each live; lives that are gone by now are left out."""
        found = zip(lives, await self._read_fields("live", lives, "selected", "epoch"), strict=True)
        return {live: Generation(text(worker or b""), int(epoch)) for live, (worker, epoch) in found if epoch}

    async def times(self, lives: Sequence[str]) -> list[Times | None]:
        """Return the times of each live's current generation; None for a live that is gone."""
        rows = await self._read_fields("live", lives, *Times._fields)
        return [Times(*(int(value or 0) for value in row)) if row[0] else None for row in rows]

    # -- moves

    async def on_worker(self, worker: str) -> list[LiveOnWorker]:
        """Return the lives that run or start on a Worker, by name. A step may fall between the reads of two lives."""
        slots = hash_of(await self._call("HGETALL", "slots", worker))
        run = {split_tag(tag): text(state) for tag, state in slots.items() if text(state) in WITH_RUNTIME}
        found = await asyncio.gather(*(self._call("HMGET", "live", live, *MOVE_FIELDS) for live, _ in run))
        rows = [
            live_on_worker(live, slot, fields)
            for ((live, epoch), slot), fields in zip(run.items(), found, strict=True)
            if fields[0] is not None and int(fields[0]) == epoch and text(fields[1]) == worker
        ]
        return sorted(rows)

    async def with_move(self, live: str) -> tuple[str, LiveOnWorker] | None:
        """Return a live's Worker, and its state there; None if there is no such live."""
        fields = await self._call("HMGET", "live", live, *MOVE_FIELDS)
        return None if fields[0] is None else (text(fields[1]), live_on_worker(live, "", fields))

    # -- recovery

    async def before_recovery(self, live: str, worker: str) -> BeforeRecovery:
        """Return the record of a live that must leave its Worker, as the event of its recovery needs it."""
        record, lost_at = await asyncio.gather(
            self._call("HMGET", "live", live, "waits", "suspect", "dropped_poison", "forgot"),
            self._call("HGET", "worker", worker, "lost_at"),
        )
        waits = tuple(text(record[0] or b"").split())
        since_ms = 0
        if waits:
            since_ms = waiting_since_ms(float(await self._call("ZSCORE", "waiting", waits[0], live) or 0))
        return BeforeRecovery(
            waits, since_ms, bool(record[1]), int(record[2] or 0), int(lost_at or 0), forgot=record[3] == b"1"
        )

    async def poison(self, live: str) -> tuple[int, bytes | None]:
        """Return how many items were dropped as poison, and the latest dead letter."""
        count, last = await asyncio.gather(
            self._call("HGET", "live", live, "dropped_poison"), self._call("LINDEX", "dead", live, -1)
        )
        return int(count or 0), last

    async def drop_dead_letter(self, live: str, letter: bytes) -> bool:
        """Remove a dead letter and its equals, so that a repetition changes nothing. Return whether it was there."""
        return bool(await self._call("LREM", "dead", live, 0, letter))

    # -- for runtimes and applications

    async def ingredients(self, live: str, worker: str, tag: str) -> Ingredients | None:
        """Return the parts of a runtime for this slot; None if there is no such live or no such slot."""
        slot, record, data = await asyncio.gather(
            self._call("HGET", "slots", worker, tag),
            self._call("HMGET", "live", live, "digital_id", "room"),
            self._call("HMGET", "data", live, "metadata", "config", "saved"),
        )
        if slot is None or record[0] is None:
            return None
        metadata, config, saved = (value or b"" for value in data)
        digital_id, room = record[0].decode(), (record[1] or b"").decode()
        return Ingredients(slot.decode(), digital_id, room, metadata, config, saved)

    async def note_said(self, live: str, item: ViewerItem) -> None:
        """Note who sent a viewer's item; keep the last SAID_MAX."""
        await asyncio.gather(
            self._call("XADD", "said", live, "MAXLEN", SAID_MAX, "*", "item", msgspec.json.encode(item)),
            self._call("PEXPIRE", "said", live, SAID_TTL_MS),
        )

    async def said_after(self, live: str, cursor: str) -> list[tuple[str, ViewerItem]]:
        """Return the items that were noted after the cursor, the oldest first, each with its own cursor."""
        entries = await self._call("XRANGE", "said", live, f"({cursor}", "+")
        return [(at.decode(), _viewer_item.decode(fields[1])) for at, fields in entries]

    async def progress(self, live: str) -> Progress | None:
        """Return a live's progress; None if there is no such live."""
        f = await self._call("HMGET", "live", live, *PROGRESS_FIELDS)
        if f[0] is None:
            return None
        epoch, worker, cause, active, state, released, acked, interrupt, end, poison, stalled = (
            text(value or b"") for value in f
        )
        return Progress(
            epoch=int(epoch),
            worker=worker,
            cause=cause,
            claimed=bool(active),
            state=state,
            released=int(released or 0),
            acked=int(acked or 0),
            dropped_interrupt=int(interrupt or 0),
            dropped_end=int(end or 0),
            dropped_poison=int(poison or 0),
            stalled=is_stalled(epoch, acked, stalled),
        )


def waiting_since_ms(score: float) -> int:
    """Return when a live joined a queue, by the store's clock; the score contains its class and that time."""
    return int(score) % WAITING_CLASS


def live_row(live: str, f: Sequence[bytes | None]) -> LiveRow:
    words = [text(each or b"") for each in f]
    digital_id, state, worker, epoch, active, priority, room, appended, acked, cause, at, target, waits = words
    return LiveRow(
        live=live,
        digital_id=digital_id,
        state=state,
        worker=worker,
        epoch=int(epoch),
        claimed=bool(active),
        priority=int(priority or 0),
        room=room,
        pending=int(appended or 0) - int(acked or 0),
        cause=cause,
        committed_at=int(at or 0),
        moving_to=target,
        waiting=bool(waits),
    )


def live_on_worker(live: str, slot: str, fields: Sequence[Any]) -> LiveOnWorker:
    epoch, _, digital_id, immovable, priority, appended, acked, target, number, expires, hold = (
        text(value or b"") for value in fields
    )
    return LiveOnWorker(
        live=live,
        epoch=int(epoch),
        slot=slot,
        digital_id=digital_id,
        immovable=immovable == "1",
        priority=int(priority or 0),
        pending=int(appended or 0) - int(acked or 0),
        target=target,
        number=int(number or 0),
        expires_at_ms=int(expires or 0),
        hold=hold if target else "",
    )
