"""The fleet as a whole: the snapshot that a fleet view is made from, queues of waiting lives, turns and marks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from dhsched.ownership.state import status_of
from dhsched.store.records.part import Part
from dhsched.store.steps.replies import text
from dhsched.types import Mode, WorkerStatus

PAGE_WORKERS = 1_000  # Workers of one snapshot script, about a millisecond of the store's time; more take more scripts.
PAGES_MAX = 1_000  # Workers beyond this many pages are missing from the snapshot.
ROW = 11
QUEUE_READ = 1_000  # Lives of one queue that are compared with other queues; further ones count in each queue.


class WorkerState(NamedTuple):
    """One Worker in a snapshot, as the store has it. `rev` is the revision of its last change."""

    worker: str
    rev: int
    pool: str
    load: int
    capacity: int
    starting: int
    mode: Mode
    lost: bool
    gone: bool
    beat: int
    labels: str

    @property
    def status(self) -> WorkerStatus:
        return status_of(mode=self.mode, lost=self.lost, gone=self.gone, beat=self.beat)

    @property
    def barred(self) -> str:
        """Return why the Worker takes nothing new; empty if it is placeable."""
        return "" if self.status == "ready" else self.status


@dataclass(frozen=True, slots=True)
class FleetRows:
    """The Workers that changed after the given revision, as of `rev`; `placed` counts the cell's placements."""

    home: str
    term: int
    rev: int
    placed: int
    config_rev: int
    workers: tuple[WorkerState, ...]


class FleetRecords(Part):
    """The fleet of a cell."""

    async def snapshot(self, since: int | None = None, *, page: int = PAGE_WORKERS) -> FleetRows:
        """Return the Workers that changed after `since`, or all without it. Exact as of the rev in the result."""
        rows: dict[str, WorkerState] = {}
        after = -1 if since is None else since
        for _ in range(PAGES_MAX):
            reply = await self._run("snapshot", after, page)
            for at in range(6, len(reply), ROW):
                row = worker_state(reply[at : at + ROW])
                rows[row.worker] = row
                after = row.rev
            if not reply[5]:
                break
        home, term, rev, placed, config_rev = reply[:5]
        return FleetRows(text(home), term, rev, placed, config_rev, tuple(rows.values()))

    async def epoch_floor(self) -> int:
        """Return the number up to which every generation is void."""
        return int(await self._call("HGET", "cell", "", "epoch_floor") or 0)

    async def position(self) -> int:
        """Return how many calls the cell has answered."""
        return int(await self._call("HGET", "cell", "", "pos") or 0)

    async def waiting(self, pools: Iterable[str]) -> dict[str, int]:
        """Return how many lives wait in the queues of these Pools; a Pool with an empty queue is left out."""
        names = [*pools]
        counts = await asyncio.gather(*(self._call("ZCARD", "waiting", pool) for pool in names))
        return {pool: int(count) for pool, count in zip(names, counts, strict=True) if count}

    async def waiting_lives(self, pools: Iterable[str]) -> int:
        """Return how many lives wait in the queues of these Pools. A live in the queues of several Pools counts once,
        if it is among the first QUEUE_READ of each."""
        names = [*pools]
        counts = await self.waiting(names)
        heads = await asyncio.gather(*(self._call("ZRANGE", "waiting", pool, 0, QUEUE_READ - 1) for pool in counts))
        return len({live for head in heads for live in head}) + sum(max(0, n - QUEUE_READ) for n in counts.values())

    async def take_turn(self, pool: str, replica: str, turn_ms: int) -> bool:
        """Return whether this replica may even out the Pool now. Two at once would do no harm."""
        return await self._call("SET", "rebalanced", pool, replica, "NX", "PX", turn_ms) is not None

    async def even_out_for(self, pool: str, for_ms: int) -> None:
        """Have the Pool evened out for so long from now on, whatever its setting; not any more with 0."""
        if for_ms:
            await self._call("SET", "evening", pool, 1, "PX", for_ms)
        else:
            await self._call("DEL", "evening", pool)

    async def is_evened_out(self, pool: str) -> bool:
        """Return whether somebody has the Pool evened out now."""
        return bool(await self._call("EXISTS", "evening", pool))

    # Each replica has its own brake; the mark makes sure that only one replica writes the event.

    async def mark_brake(self, replica: str, for_ms: int) -> bool:
        """Mark that the brake is on. Return whether it was not marked before."""
        return await self._call("SET", "brake", "", replica, "NX", "PX", for_ms) is not None

    async def braking(self) -> str:
        """Return the replica that marked the brake; empty if the brake is off."""
        return text(await self._call("GET", "brake") or b"")

    async def keep_brake_marked(self, for_ms: int) -> None:
        await self._call("PEXPIRE", "brake", "", for_ms)

    async def unmark_brake(self) -> bool:
        """Remove the mark. Return whether it was there."""
        return bool(await self._call("DEL", "brake"))


def worker_state(f: Sequence[Any]) -> WorkerState:
    return WorkerState(
        worker=text(f[0]),
        rev=int(float(f[1])),  # A score: some servers write it as 1e+09.
        pool=text(f[2]),
        load=int(f[3] or 0),
        capacity=int(f[4] or 0),
        starting=int(f[5] or 0),
        mode=cast(Mode, text(f[6])),
        lost=f[7] == b"1",
        gone=f[8] == b"1",
        beat=int(f[9] or 0),
        labels=text(f[10]),
    )
