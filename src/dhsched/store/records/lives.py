"""Lives: their records, lists of their names, their dead letters. Nothing here walks the key space: lives are listed
through `lives`, by name, and the lives of a Worker through its slot table."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from dhsched.ownership.draft import WAITING_CLASS
from dhsched.ownership.state import Live
from dhsched.ownership.steps.emit import read_emit
from dhsched.store.raw import decode_live, hash_of, is_stalled, pair_of
from dhsched.store.record import read_texts, stored_fields
from dhsched.store.records.part import Part
from dhsched.store.steps.api import TEXT_BYTES_MAX
from dhsched.store.steps.replies import text
from dhsched.types import OWNED, PRIORITIES, WITH_RUNTIME, Generation, check_bytes, split_tag

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
    stalled: bool
    created_at: int
    idle_since: int | None  # None while input came that no look has seen yet.
    expired: str
    labels: tuple[str, ...]
    acked: int = 0


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


class LiveDetails(NamedTuple):
    """What a runtime is built from, and the state of its slot."""

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
    interrupted: tuple[int, int]
    """The last interrupt, and the item after which it dropped everything."""
    emitted: tuple[int, int]
    """Epoch and n of the last message that a runtime emitted."""


class Message(NamedTuple):
    """A message of a runtime: `n` counts those of one generation. `data` is a JSON object."""

    epoch: int
    n: int
    name: str
    data: bytes


ROW_FIELDS = (
    *("digital_id", "state", "selected", "epoch", "unclaimed", "priority", "room", "appended", "acked"),
    *("cause", "committed_at", "move_target", "waits", "stalled", "created_at", "seen", "expired"),
)
MOVE_FIELDS = (
    *("epoch", "selected", "digital_id", "immovable", "priority", "appended", "acked"),
    *("move_target", "move_number", "move_expires", "hold"),
)
PROGRESS_FIELDS = (
    *("epoch", "selected", "cause", "unclaimed", "state", "released", "acked"),
    *("dropped_interrupt", "dropped_end", "dropped_poison", "stalled", "interrupted", "emitted"),
)


class LiveRecords(Part):
    """The lives of a cell, by their full name, `tenant/id`."""

    async def get(self, live: str) -> Live | None:
        """Return a live's whole record, without its pending input; None if there is no such live."""
        record, data, history, dead = await self._call_all(
            ("HGETALL", "live", live),
            ("HGETALL", "data", live),
            ("GET", "history", live),
            ("LRANGE", "dead", live, 0, -1),
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

    async def open_count(self) -> int:
        """Return how many lives of all tenants have not ended. A live may end between the commands."""
        lives, ended = await asyncio.gather(self._call("ZCARD", "lives"), self._call("ZCARD", "ended"))
        return max(0, int(lives) - int(ended))

    async def rows(self, lives: Sequence[str]) -> list[LiveRow]:
        """Return the list rows of these lives; lives that are gone by now are left out."""
        records = asyncio.gather(*(self._texts(live, ROW_FIELDS) for live in lives))
        rows, labels = await asyncio.gather(records, self._read_fields("data", lives, "labels"))
        found = zip(lives, rows, labels, strict=True)
        return [live_row(live, f, has or b"") for live, f, (has,) in found if f["epoch"]]

    async def generations(self, lives: Sequence[str]) -> dict[str, Generation]:
        """Return the current generation of each live; lives that are gone by now are left out."""
        rows = await self._texts_of(lives, ("selected", "epoch"))
        found = zip(lives, rows, strict=True)
        return {live: Generation(f["selected"], int(f["epoch"])) for live, f in found if f["epoch"]}

    async def times(self, lives: Sequence[str]) -> list[Times | None]:
        """Return the times of each live's current generation; None for a live that is gone."""
        rows = await self._texts_of(lives, Times._fields)
        return [Times(*(int(value or 0) for value in f.values())) if f["epoch"] else None for f in rows]

    async def _texts(self, live: str, names: Sequence[str]) -> dict[str, str]:
        """Return these values of a live's record as text; empty where not set, and if there is no such live."""
        return read_texts(names, await self._call("HMGET", "live", live, *stored_fields(names)))

    async def _texts_of(self, lives: Sequence[str], names: Sequence[str]) -> list[dict[str, str]]:
        """Return like `_texts` the values of many lives, read in few calls."""
        return [read_texts(names, row) for row in await self._read_fields("live", lives, *stored_fields(names))]

    # -- moves

    async def on_worker(self, worker: str) -> list[LiveOnWorker]:
        """Return the lives that run or start on a Worker, by name. A step may fall between the reads of two lives."""
        slots = hash_of(await self._call("HGETALL", "slots", worker))
        run = {split_tag(tag): text(state) for tag, state in slots.items() if text(state) in WITH_RUNTIME}
        found = await asyncio.gather(*(self._texts(live, MOVE_FIELDS) for live, _ in run))
        rows = [
            live_on_worker(live, slot, f)
            for ((live, epoch), slot), f in zip(run.items(), found, strict=True)
            if f["epoch"] == str(epoch) and f["selected"] == worker
        ]
        return sorted(rows)

    async def with_move(self, live: str) -> tuple[str, LiveOnWorker] | None:
        """Return a live's Worker, and its state there; None if there is no such live."""
        f = await self._texts(live, MOVE_FIELDS)
        return (f["selected"], live_on_worker(live, "", f)) if f["epoch"] else None

    # -- recovery

    async def before_recovery(self, live: str, worker: str) -> BeforeRecovery:
        """Return the record of a live that must leave its Worker, as the event of its recovery needs it."""
        record, lost_at = await asyncio.gather(
            self._texts(live, ("waits", "suspect", "dropped_poison", "forgot")),
            self._call("HGET", "worker", worker, "lost_at"),
        )
        waits = tuple(record["waits"].split())
        score = await self._call("ZSCORE", "waiting", waits[0], live) if waits else None
        return BeforeRecovery(
            waited_in=waits,
            waits_since_ms=waiting_since_ms(float(score or 0)),
            suspect=bool(record["suspect"]),
            poisoned=int(record["dropped_poison"] or 0),
            lost_at_ms=int(lost_at or 0),
            forgot=record["forgot"] == "1",
        )

    async def poison(self, live: str) -> tuple[int, bytes | None]:
        """Return how many items were dropped as poison, and the latest dead letter."""
        count, last = await asyncio.gather(
            self._call("HGET", "live", live, "dropped_poison"), self._call("LINDEX", "dead", live, -1)
        )
        return int(count or 0), last

    async def describe(self, live: str, metadata: bytes | None, labels: bytes | None) -> bool:
        """Replace a live's metadata, or its labels; None leaves them. Return whether there is such a live. Raise
        BadValue for metadata that a create would be refused with."""
        if metadata is not None:
            check_bytes(metadata, "metadata", TEXT_BYTES_MAX)
        given = (b"" if value is None else b"=" + value for value in (metadata, labels))
        [known] = await self._run("describe", live, *given, counted=True)
        return bool(known)

    async def drop_dead_letter(self, live: str, letter: bytes) -> bool:
        """Remove a dead letter and its equals, so that a repetition changes nothing. Return whether it was there."""
        return bool(await self._call("LREM", "dead", live, 0, letter))

    # -- for runtimes and applications

    async def details(self, live: str, worker: str, tag: str) -> LiveDetails | None:
        """Return what the runtime of this slot is built from; None if there is no such live or no such slot."""
        slot, record, data = await self._call_all(
            ("HGET", "slots", worker, tag),
            ("HMGET", "live", live, "digital_id", "room"),
            ("HMGET", "data", live, "metadata", "config", "saved"),
        )
        if slot is None or record[0] is None:
            return None
        metadata, config, saved = (value or b"" for value in data)
        digital_id, room = record[0].decode(), (record[1] or b"").decode()
        return LiveDetails(slot.decode(), digital_id, room, metadata, config, saved)

    async def note_device(self, live: str, epoch: int, device: str) -> None:
        """Note the device that the live's generation runs on."""
        await self._call("SET", "device", live, f"{epoch} {device}")

    async def device(self, live: str, epoch: int) -> str:
        """Return the device that was noted for this generation; empty if none was."""
        noted, _, device = text(await self._call("GET", "device", live) or b"").partition(" ")
        return device if noted == str(epoch) else ""

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

    async def emits_after(self, live: str, last: tuple[int, int]) -> list[Message]:
        """Return the messages that are kept and came after the message `last`, as epoch and n; the oldest first."""
        kept = [Message(*read_emit(stored)) for stored in await self._call("LRANGE", "emits", live, 0, -1)]
        return [message for message in kept if message[:2] > last]

    async def progress(self, live: str) -> Progress | None:
        """Return a live's progress; None if there is no such live."""
        f = await self._texts(live, PROGRESS_FIELDS)
        if not f["epoch"]:
            return None
        return Progress(
            epoch=int(f["epoch"]),
            worker=f["selected"],
            cause=f["cause"],
            claimed=not f["unclaimed"],
            state=f["state"],
            released=int(f["released"]),
            acked=int(f["acked"]),
            dropped_interrupt=int(f["dropped_interrupt"] or 0),
            dropped_end=int(f["dropped_end"] or 0),
            dropped_poison=int(f["dropped_poison"] or 0),
            stalled=is_stalled(f["epoch"], f["acked"], f["stalled"]),
            interrupted=pair_of(f["interrupted"]),
            emitted=pair_of(f["emitted"]),
        )


def waiting_since_ms(score: float) -> int:
    """Return when a live joined a queue, by the store's clock; the score contains its class and that time."""
    return int(score) % WAITING_CLASS


def live_row(live: str, f: Mapping[str, str], labels: bytes) -> LiveRow:
    then, _, since = f["seen"].partition(" ")
    return LiveRow(
        live=live,
        digital_id=f["digital_id"],
        state=f["state"],
        worker=f["selected"],
        epoch=int(f["epoch"]),
        claimed=not f["unclaimed"],
        priority=int(f["priority"] or 0),
        room=f["room"],
        pending=int(f["appended"]) - int(f["acked"]),
        cause=f["cause"],
        committed_at=int(f["committed_at"] or 0),
        moving_to=f["move_target"],
        waiting=bool(f["waits"]),
        stalled=is_stalled(f["epoch"], f["acked"], f["stalled"]),
        created_at=int(f["created_at"] or 0),
        idle_since=int(since) if then == f["appended"] else None,
        expired=f["expired"],
        labels=tuple(text(labels).split()),
        acked=int(f["acked"]),
    )


def live_on_worker(live: str, slot: str, f: Mapping[str, str]) -> LiveOnWorker:
    return LiveOnWorker(
        live=live,
        epoch=int(f["epoch"]),
        slot=slot,
        digital_id=f["digital_id"],
        immovable=f["immovable"] == "1",
        priority=int(f["priority"] or 0),
        pending=int(f["appended"]) - int(f["acked"]),
        target=f["move_target"],
        number=int(f["move_number"] or 0),
        expires_at_ms=int(f["move_expires"] or 0),
        hold=f["hold"] if f["move_target"] else "",
    )
