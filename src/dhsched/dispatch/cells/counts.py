"""How many lives of a tenant the other cells have, for its `lives_max`: as they said a moment ago.

The step `place` compares in its own cell, exactly. What the other cells leave of the limit is counted here: as their
stores said at the last read, a second old as a rule, and what this replica has created there since, or is creating now.
So a burst through one replica does not pass the limit; through several it may, by what each of them does not know of
the others. A create does not wait for a store that is away: that cell counts with what it said last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dhsched.dispatch.cells.served import ServedCell
from dhsched.errors import StoreError

COUNT_S = 1.0  # A count is read again after this; until it is there, the last one is used,
OLD_S = 2.0  # up to this age. A create waits for a count that is older,
WAIT_S = 0.3  # for so long; then the last one is used, or none.
KEPT_MAX = 10_000  # Counts that are kept; beyond it, the one that was used longest ago is forgotten.


@dataclass(slots=True)
class Count:
    """A tenant's lives in one cell."""

    read_at: float = float("-inf")
    lives: int = 0
    made: int = 0
    """What this replica has created there since the last read began."""
    making: int = 0
    """What this replica is creating there now."""


@dataclass(frozen=True, slots=True)
class LivesElsewhere:
    """What the creates in one cell need to know of the others."""

    counts: TenantCounts
    cell: ServedCell

    async def count(self, tenant: str) -> int:
        """Return how many lives of a tenant that have not ended are in other cells, one that is being created now
        included."""
        return await self.counts.elsewhere(self.cell, tenant)

    @contextmanager
    def creating(self, tenant: str) -> Iterator[Count]:
        """Count one more live of a tenant in this cell while the block runs. Whoever creates it adds 1 to `made`."""
        count = self.counts.of(self.cell, tenant)
        count.making += 1
        try:
            yield count
        finally:
            count.making -= 1


class TenantCounts:
    """The counts of one replica. `cells` are all of the deployment."""

    def __init__(self, cells: Sequence[ServedCell]) -> None:
        self._cells = cells
        self._known: OrderedDict[tuple[str, str], Count] = OrderedDict()
        self._reads: dict[tuple[str, str], asyncio.Task[None]] = {}

    def of(self, cell: ServedCell, tenant: str) -> Count:
        """Return the count of a tenant in a cell, which the caller may keep for a while."""
        key = (cell.name, tenant)
        count = self._known.setdefault(key, Count())
        self._known.move_to_end(key)
        while len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)
        return count

    async def elsewhere(self, cell: ServedCell, tenant: str) -> int:
        now = asyncio.get_running_loop().time()
        others = [each for each in self._cells if each is not cell and not each.trouble]
        awaited = []
        for each in others:
            age_s = now - self.of(each, tenant).read_at
            if age_s >= COUNT_S:
                reading = self._read(each, tenant)
                if age_s >= OLD_S and each.reachable:
                    awaited.append(reading)
        if awaited:
            await asyncio.wait(awaited, timeout=WAIT_S)
        counts = [self.of(each, tenant) for each in others]
        return sum(each.lives + each.made + each.making for each in counts)

    def _read(self, cell: ServedCell, tenant: str) -> asyncio.Task[None]:
        """Return the task that reads a count: the one that is under way, or a new one."""
        key = (cell.name, tenant)
        if key not in self._reads:
            self._reads[key] = task = asyncio.create_task(self._keep(cell, tenant), name=f"count of {tenant}")
            task.add_done_callback(lambda _: self._reads.pop(key))
        return self._reads[key]

    async def _keep(self, cell: ServedCell, tenant: str) -> None:
        count = self.of(cell, tenant)
        counted = count.made  # What is created while the store is read may be in its answer or not.
        try:
            lives = (await cell.records.tenants.usage(tenant)).lives
        except StoreError:
            return
        count.lives, count.made, count.read_at = lives, count.made - counted, asyncio.get_running_loop().time()
