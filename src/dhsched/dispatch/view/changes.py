"""What changed in the fleet, in numbered batches that any number of readers follow.

The source is the fleet view, which the replica refreshes anyway. After each refresh, while somebody follows, the slot
tables of the Workers whose revision has changed are read and compared with those of the round before: the differences
are the lives that changed. No live's record is read. A claim changes no revision, so a Worker with a starting slot is
read in every round until nothing starts there.

A batch has a number. The last BATCHES_MAX batches are kept: a reader that comes back with a number among them goes on
there, and any other reader is given all Workers first. A reader has no queue of its own, so a slow one costs nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dhsched.client.models.summary import Changes, LiveNow, WorkerNow
from dhsched.placement.index import WorkerView
from dhsched.types import split_tag

if TYPE_CHECKING:
    from dhsched.dispatch.context import DispatchContext

BATCHES_MAX = 1_000  # Older batches are dropped; a reader that is further behind is given all Workers again.
ROWS_MAX = 500  # Workers or lives of one batch; more make further batches.
READS_MAX = 200  # Slot tables read at once; further ones come after them, in the same round.
KEPT_S = 60.0  # Without a reader for this long the tables are forgotten, and nothing is read any more.

Slots = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Known:
    """A Worker as the last round has read it."""

    now: WorkerNow
    rev: int
    slots: Slots


@dataclass(slots=True)
class Table:
    """Every Worker as of the last round, and the batches so far. Pure: `replace` takes the Workers of a new round."""

    known: dict[str, Known] = field(default_factory=dict)
    batches: deque[Changes] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))
    number: int = 0
    """The number of the newest batch."""
    whole: bool = False
    """Whether every Worker has been read once: differences from an empty table are no changes."""

    def after(self, number: int) -> list[Changes] | None:
        """Return the batches after this number; None if they are not all kept."""
        behind = self.number - number
        if not 0 <= behind <= len(self.batches):
            return None
        return [self.batches[at] for at in range(len(self.batches) - behind, len(self.batches))]

    def replace(self, read: Mapping[str, Known], gone: Sequence[str]) -> None:
        """Take over what a round has read, and make the batches of its differences."""
        workers = [each.now for name, each in read.items() if self._now(name) != each.now]
        lives = [row for name, each in read.items() for row in differences(name, self._slots(name), each.slots)]
        lives += [row for name in gone for row in differences(name, self._slots(name), {})]
        self.known.update(read)
        for name in gone:
            del self.known[name]
        if not self.whole:
            self.whole = True
            return
        for first in range(0, max(len(workers), len(lives), len(gone)), ROWS_MAX):
            part = slice(first, first + ROWS_MAX)
            self.batches.append(Changes(workers[part], [*gone[part]], lives[part]))
            self.number += 1

    def _now(self, name: str) -> WorkerNow | None:
        return self.known[name].now if name in self.known else None

    def _slots(self, name: str) -> Slots:
        return self.known[name].slots if name in self.known else {}


def differences(worker: str, before: Slots, after: Slots) -> Iterator[LiveNow]:
    """Yield the slots of a Worker that changed: new ones, other states, and those that a live has left."""
    for tag in {**before, **after}:
        if before.get(tag) != (state := after.get(tag, "")):
            live, number = split_tag(tag)
            tenant, _, live_id = live.partition("/")
            yield LiveNow(tenant, live_id, worker, number, state)


def worker_now(row: WorkerView, slots: Slots) -> WorkerNow:
    """Return a Worker as the feed shows it. Its slots are counted, because they are younger than the view."""
    states = Counter(slots.values())
    return WorkerNow(
        worker=row.worker,
        pool=row.pool,
        status=row.barred or "ready",
        load=len(slots),
        capacity=row.capacity,
        starting=states["starting"],
        slots=dict(states),
    )


class ChangeFeed:
    """The batches of one replica, made while somebody follows."""

    def __init__(self, context: DispatchContext) -> None:
        self._context = context
        self._refreshed = asyncio.Event()
        self._batched = asyncio.Event()
        self._one_round = asyncio.Lock()
        self._readers = 0
        self._left_at = -KEPT_S
        self._begin()

    def refreshed(self) -> None:
        """Note that the view was refreshed, for `follow`."""
        self._refreshed.set()

    def _begin(self) -> None:
        self.table = Table()
        self.boot = secrets.token_hex(4)  # Part of each cursor: numbers begin anew with the table.

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the feed going while the block runs."""
        self._readers += 1
        self._refreshed.set()
        try:
            yield
        finally:
            self._readers -= 1
            self._left_at = self._context.loop_time()

    @property
    def batched(self) -> asyncio.Event:
        """The event that the next batch, or the first whole table, sets. Take the event before you read the table."""
        return self._batched

    async def now(self) -> Table:
        """Return the table, read anew. It is kept for KEPT_S, for a reader that goes on from its number."""
        self._left_at = self._context.loop_time()
        await self.round()
        return self.table

    async def follow(self) -> None:
        """Wait until the view was refreshed, and make the batches of the differences; none while nobody reads."""
        await self._refreshed.wait()
        self._refreshed.clear()
        if self._readers or self._context.loop_time() - self._left_at < KEPT_S:
            await self.round()
        elif self.table.known:
            self._begin()

    async def round(self) -> None:
        """Read the slot tables that may have changed, and batch the differences."""
        async with self._one_round:
            table = self.table
            read = await self._read(table.known)
            gone = [name for name in table.known if name not in self._context.fleet.view.workers]
            before = (table.number, table.whole)
            table.replace(read, gone)
            if (table.number, table.whole) != before:
                self._batched.set()
                self._batched = asyncio.Event()

    async def _read(self, known: Mapping[str, Known]) -> dict[str, Known]:
        """Return the Workers whose slots may differ from what is known."""
        due = [row for name, row in self._context.fleet.view.workers.items() if is_due(known.get(name), row)]
        read: dict[str, Known] = {}
        for first in range(0, len(due), READS_MAX):
            page = due[first : first + READS_MAX]
            revs = [row.row_rev for row in page]
            tables = await asyncio.gather(*(self._context.records.workers.slots(row.worker) for row in page))
            for row, rev, slots in zip(page, revs, tables, strict=True):
                read[row.worker] = Known(worker_now(row, slots), rev, slots)
        return read


def is_due(seen: Known | None, row: WorkerView) -> bool:
    """Return whether the view has another revision of the Worker, something may start there, or a correction of the
    view says something else at the same revision."""
    if row.row_rev < 0:
        return False  # Known from a refusal alone.
    if seen is None or seen.rev != row.row_rev or seen.now.starting:
        return True
    return (seen.now.status, seen.now.capacity, seen.now.pool) != (row.barred or "ready", row.capacity, row.pool)
