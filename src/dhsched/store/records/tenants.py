"""What is counted per tenant: the replicas' last reports, and the usage of each tenant since the beginning.

`counts` is a hash of replicas to one report each, with the store's own time, so no clock of another machine is
compared. A report that is older than `FRESH_MS` is not passed on: its replica has stopped, and what it counted has
ended with it. `usage` is a hash of totals, which only grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dhsched.store.records.part import Part

REPORT_DEADLINE_S = 1.0  # A report that the store does not answer within this time is made again with the next one.
FRESH_MS = 5_000
FORGET_MS = 60_000  # A batch of items that comes again later than this is added again.
METER_TURN_MS = 5_000  # A metering sooner than this after the last one, of any replica, does nothing.
METER_TENANTS = 100  # Tenants of one script, about a millisecond of the store's time; more take more scripts.


class TenantCounts(NamedTuple):
    """What one replica counts of one tenant. `requests` is per second."""

    streams: int
    waiting: int
    requests: int


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """The totals of one tenant, and how many of its lives have not ended now."""

    lives: int
    live_ms: int
    items: int


class Metered(NamedTuple):
    """What one page of a metering added: `elapsed_ms` for each live of each tenant. `after` is empty on the last."""

    elapsed_ms: int
    after: str
    lives: dict[str, int]


class TenantRecords(Part):
    """What is counted per tenant in a cell."""

    async def report(
        self,
        replica: str,
        counts: Mapping[str, TenantCounts],
        *,
        batch: int = 0,
        items: Mapping[str, int] | None = None,
    ) -> tuple[int, list[dict[str, TenantCounts]]]:
        """Keep this replica's counts by tenant, and add its items to the usage unless this batch was added before.

        Return the revision of the configuration and the counts of every other replica.
        """
        said = " ".join(f"{tenant} {c.streams} {c.waiting} {c.requests}" for tenant, c in counts.items())
        added = " ".join(f"{tenant} {count}" for tenant, count in (items or {}).items())
        arguments = (replica, said, batch, added, FRESH_MS, FORGET_MS)
        rev, *others = await self._run("count_tenants", *arguments, deadline_s=REPORT_DEADLINE_S)
        return int(rev), [parse(each.decode()) for each in others]

    async def meter_lives(self, after: str = "", elapsed_ms: int = 0, *, gap_max_ms: int) -> Metered:
        """Add the time since the last metering to each tenant's live time, for a page of tenants.

        The first page decides how long that time is; the others are given it. It is 0 if another replica had its
        turn, and `gap_max_ms` at most.
        """
        arguments = (after, elapsed_ms, METER_TENANTS, METER_TURN_MS, gap_max_ms)
        elapsed, next_, *rows = await self._run("meter_lives", *arguments)
        lives = {tenant.decode(): int(count) for tenant, count in zip(rows[::2], rows[1::2], strict=True)}
        return Metered(int(elapsed), next_.decode(), lives)

    async def usage(self, tenant: str) -> TenantUsage:
        """Return the usage of one tenant. A live may end between the commands."""
        between = (f"[{tenant}/", f"({tenant}0")  # The byte after the slash is 0.
        lives, ended, totals = await asyncio.gather(
            self._call("ZLEXCOUNT", "lives", "", *between),
            self._call("ZLEXCOUNT", "ended", "", *between),
            self._call("HMGET", "usage", "", f"{tenant} live_ms", f"{tenant} items"),
        )
        live_ms, items = (int(each or 0) for each in totals)
        return TenantUsage(max(0, lives - ended), live_ms, items)


def parse(said: str) -> dict[str, TenantCounts]:
    """Return the counts by tenant of one report."""
    words = said.split()
    rows = (words[at : at + 4] for at in range(0, len(words), 4))
    return {tenant: TenantCounts(*map(int, numbers)) for tenant, *numbers in rows}
