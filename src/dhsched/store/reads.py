"""What a service reads of a cell besides the steps' answers, over a link of its own: lists must not hold up steps.

Nothing here walks the key space. Lives are listed through `lives`, by name; those of a Worker through its slot table;
Workers through `workers`, by the revision of their last change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from dhsched.ownership.state import Live, Worker
from dhsched.store.address import Address
from dhsched.store.keys import Keys
from dhsched.store.link import Link, LinkSettings
from dhsched.store.raw import decode_live, decode_worker, hash_of
from dhsched.store.replies import text
from dhsched.store.scripts import scripts_around
from dhsched.types import PRIORITIES

PAGE_WORKERS = 1_000  # Of one snapshot script: about a millisecond of the store's time.
PAGES_MAX = 1_000
BIG_READS = LinkSettings(deadline_s=5.0, client_name="dhsched-reads")
CURRENT_SLOTS = (b"starting", b"running", b"vacant")
ROW = 11
TROUBLES_MAX = 256  # Of one Worker name, kept at once.
T = TypeVar("T")


class WorkerState(NamedTuple):
    """One Worker in a snapshot, as the store has it. `rev` is that of its last change."""

    worker: str
    rev: int
    pool: str
    load: int
    capacity: int
    starting: int
    mode: str
    lost: bool
    gone: bool
    beat: int
    labels: str

    @property
    def barred(self) -> str:
        """Why it takes nothing new; empty when it is placeable."""
        if self.gone or self.lost:
            return "gone" if self.gone else "lost"
        if self.mode != "ready":
            return self.mode
        return "" if self.beat else "new"


class Beat(NamedTuple):
    """A Worker's sign of life, as the store has it."""

    beat: int
    lost: bool
    mode: str


@dataclass(frozen=True, slots=True)
class FleetRows:
    """The Workers that changed after the revision asked for, all as of `rev`; `placed` counts the cell's placements."""

    term: int
    rev: int
    placed: int
    config_rev: int
    workers: tuple[WorkerState, ...]


class LiveRow(NamedTuple):
    """What a list shows of a live."""

    live: str
    digital_id: str
    state: str
    worker: str
    epoch: int
    active: bool
    priority: int
    room: str
    pending: int
    cause: str
    committed_at: int
    moving_to: str
    waiting: bool


class Times(NamedTuple):
    """When the current generation was committed, claimed and first acked, by the store's clock; 0 is not yet."""

    epoch: int
    committed_at: int
    claimed_at: int
    first_ack_at: int


LIVE_FIELDS = (
    *("digital_id", "state", "selected", "epoch", "active", "priority", "room", "appended", "acked"),
    *("cause", "committed_at", "move_target", "waits"),
)


class Reads:
    """Reads of one cell."""

    def __init__(self, link: Link, cell: str) -> None:
        self.link = link
        self.keys = Keys(cell)

    @classmethod
    async def open(cls, address: Address, *, cell: str = "main", settings: LinkSettings = BIG_READS) -> Self:
        scripts = {name: script.source for name, script in scripts_around().items()}
        return cls(await Link.open(address, scripts=scripts, settings=settings, slot_key=Keys(cell).cell), cell)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.link.close()

    # -- Workers

    async def snapshot(self, since: int | None = None, *, page: int = PAGE_WORKERS) -> FleetRows:
        """Workers that changed after `since`; all of them without it. Exact as of the rev that it carries."""
        rows: dict[str, WorkerState] = {}
        after = -1 if since is None else since
        for _ in range(PAGES_MAX):
            reply = await self.link.run("snapshot", [self.keys.cell], [after, page])
            for at in range(5, len(reply), ROW):
                row = worker_state(reply[at : at + ROW])
                rows[row.worker] = row
                after = row.rev
            if not reply[4]:
                break
        term, rev, placed, config_rev = reply[:4]
        return FleetRows(term, rev, placed, config_rev, tuple(rows.values()))

    async def worker(self, worker: str) -> tuple[Worker, dict[str, str]] | None:
        """A Worker's record and its slot table."""
        record, slots = await asyncio.gather(
            self.link.call("HGETALL", self.keys.of("worker", worker)),
            self.link.call("HGETALL", self.keys.of("slots", worker)),
        )
        if not record:
            return None
        return decode_worker(hash_of(record)), {tag: text(state) for tag, state in hash_of(slots).items()}

    async def beats(self) -> dict[str, Beat]:
        """The beat of every Worker that is not gone."""
        workers = [text(worker) for worker in await self.link.call("ZRANGE", self.keys.of("workers"), 0, -1)]
        calls = [self.link.call("HMGET", self.keys.of("worker", w), "beat", "lost", "gone", "mode") for w in workers]
        replies = await asyncio.gather(*calls)
        return {
            worker: Beat(int(beat), lost == b"1", text(mode))
            for worker, (beat, lost, gone, mode) in zip(workers, replies, strict=True)
            if beat is not None and gone != b"1"
        }

    async def drift(self, worker: str) -> tuple[int, int] | None:
        """A Worker's load and the slots it has, where the two differ in three readings on end.

        The two are read one after the other, so a step may fall between them; not three times.
        """
        for _ in range(3):
            load, slots = await asyncio.gather(
                self.link.call("HGET", self.keys.of("worker", worker), "load"),
                self.link.call("HLEN", self.keys.of("slots", worker)),
            )
            if load is None or int(load) == slots:
                return None
        return int(load), slots

    async def trouble(self, name: str, member: str, window_ms: int) -> tuple[bool, list[str]]:
        """Note a trouble of a Worker's name, or none; whether it is new, and all within the window."""
        reply = await self.link.run("trouble", [self.keys.cell], [name, member, window_ms, TROUBLES_MAX])
        return bool(reply[0]), [text(each) for each in reply[1:]]

    async def forget_troubles(self, name: str) -> None:
        await self.link.call("DEL", self.keys.of("trouble", name))

    async def departing(self, worker: str) -> list[str]:
        """Tags of a Worker's slots whose runtime it was told to stop."""
        table = hash_of(await self.link.call("HGETALL", self.keys.of("slots", worker)))
        return [tag for tag, state in table.items() if state == b"departing"]

    # -- lives

    async def due(self, limit: int) -> list[str]:
        """Lives to look at now, the most urgent class first."""
        found = await self.link.run("due", [self.keys.cell], [limit, PRIORITIES])
        return [text(live) for live in found]

    async def live(self, live: str) -> Live | None:
        """A live's whole record, without its pending input."""
        record, data, history, dead = await asyncio.gather(
            self.link.call("HGETALL", self.keys.of("live", live)),
            self.link.call("HGETALL", self.keys.of("data", live)),
            self.link.call("GET", self.keys.of("history", live)),
            self.link.call("LRANGE", self.keys.of("dead", live), 0, -1),
        )
        if not record:
            return None
        rest = {"data": {live: data}, "history": {live: history or b""}, "dead": {live: dead}}
        return decode_live(live, hash_of(record), rest)

    async def rows(self, lives: Sequence[str]) -> list[LiveRow]:
        """What a list shows of these lives; those that are gone by now are left out."""
        calls = [self.link.call("HMGET", self.keys.of("live", live), *LIVE_FIELDS) for live in lives]
        replies = await asyncio.gather(*calls)
        return [live_row(live, reply) for live, reply in zip(lives, replies, strict=True) if reply[3]]

    async def times(self, lives: Sequence[str]) -> list[Times | None]:
        """How far the current generation of each live has come; None for one that is gone."""
        replies = await asyncio.gather(
            *(self.link.call("HMGET", self.keys.of("live", live), *Times._fields) for live in lives)
        )
        return [Times(*(int(value or 0) for value in reply)) if reply[0] else None for reply in replies]

    async def names(self, tenant: str, after: str, limit: int) -> list[str]:
        """Lives of a tenant by name, after the id `after`. Names do not move, so a walk meets each live once."""
        start = f"({tenant}/{after}" if after else f"[{tenant}/"
        stop = f"({tenant}0"  # 0 comes right after / in ASCII.
        found = await self.link.call("ZRANGEBYLEX", self.keys.of("lives"), start, stop, "LIMIT", 0, limit)
        return [text(live) for live in found]

    async def all_names(self, after: str, limit: int) -> list[str]:
        """Lives of every tenant by full name, after the live `after`."""
        start = f"({after}" if after else "-"
        found = await self.link.call("ZRANGEBYLEX", self.keys.of("lives"), start, "+", "LIMIT", 0, limit)
        return [text(live) for live in found]

    async def names_on(self, worker: str, tenant: str, after: str, limit: int) -> list[str]:
        """The same for the lives whose current generation is on a Worker."""
        table = hash_of(await self.link.call("HGETALL", self.keys.of("slots", worker)))
        lives = {tag.rpartition("@")[0] for tag, state in table.items() if state in CURRENT_SLOTS}
        first, prefix = f"{tenant}/{after}", f"{tenant}/"
        return sorted(live for live in lives if live.startswith(prefix) and live > first)[:limit]

    async def drop_dead(self, live: str, item: bytes) -> bool:
        """Forget a dead letter and its equals, so that forgetting it twice is the same; whether it was there."""
        return bool(await self.link.call("LREM", self.keys.of("dead", live), 0, item))

    async def epoch_floor(self) -> int:
        return int(await self.link.call("HGET", self.keys.cell, "epoch_floor") or 0)

    # -- configuration

    async def config_rev(self) -> int:
        return int(await self.link.call("HGET", self.keys.cell, "config_rev") or 0)

    async def configured(self, kind: str, what: type[T]) -> dict[str, T]:
        """All Pools, or all DigitalIDs, by name."""
        found = hash_of(await self.link.call("HGETALL", self.keys.of(kind)))
        return {name: msgspec.json.decode(value, type=what) for name, value in sorted(found.items())}

    async def configure(self, kind: str, name: str, value: msgspec.Struct | None) -> bool:
        """Put (or, without a value, delete) a Pool or a DigitalID; whether it was there before."""
        encoded = b"" if value is None else msgspec.json.encode(value)
        known, _rev = await self.link.run("configure", [self.keys.cell], [kind, name, encoded])
        return bool(known)

    # -- the store itself

    async def memory_share(self) -> float:
        """How much of its memory the store has used, from 0 to 1; 0 where it has no limit."""
        info = parse_info(await self.link.call("INFO", "memory"))
        limit = int(info.get("maxmemory", 0))
        return int(info.get("used_memory", 0)) / limit if limit else 0.0


def worker_state(f: Sequence[Any]) -> WorkerState:
    return WorkerState(
        worker=text(f[0]),
        rev=int(float(f[1])),  # A score: some servers write it as 1e+09.
        pool=text(f[2]),
        load=int(f[3] or 0),
        capacity=int(f[4] or 0),
        starting=int(f[5] or 0),
        mode=text(f[6]),
        lost=f[7] == b"1",
        gone=f[8] == b"1",
        beat=int(f[9] or 0),
        labels=text(f[10]),
    )


def live_row(live: str, f: Sequence[bytes | None]) -> LiveRow:
    words = [text(each) if each is not None else "" for each in f]
    digital_id, state, worker, epoch, active, priority, room, appended, acked, cause, at, target, waits = words
    return LiveRow(
        live=live,
        digital_id=digital_id,
        state=state,
        worker=worker,
        epoch=int(epoch),
        active=bool(active),
        priority=int(priority or 0),
        room=room,
        pending=int(appended or 0) - int(acked or 0),
        cause=cause,
        committed_at=int(at or 0),
        moving_to=target,
        waiting=bool(waits),
    )


def parse_info(reply: Any) -> Mapping[str, str]:
    pairs = (line.partition(":") for line in text(reply).splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}
