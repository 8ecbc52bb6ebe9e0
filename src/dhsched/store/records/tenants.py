"""What the replicas count of each tenant: every replica's last report, for as long as it is fresh.

`counts` is a hash of replicas to one report each, with the store's own time, so no clock of another machine is
compared. A report that is older than `FRESH_MS` is removed by the next one of any replica: its replica has stopped, and
what it counted has ended with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dhsched.store.records.part import Part

FRESH_MS = 5_000


class TenantCounts(NamedTuple):
    """What one replica counts of one tenant. `requests` is per second."""

    streams: int
    waiting: int
    requests: int


class TenantRecords(Part):
    """What is counted per tenant in a cell."""

    async def report(
        self, replica: str, counts: Mapping[str, TenantCounts]
    ) -> tuple[int, list[dict[str, TenantCounts]]]:
        """Keep this replica's counts by tenant; return the revision of the configuration and every other replica's."""
        said = " ".join(f"{tenant} {c.streams} {c.waiting} {c.requests}" for tenant, c in counts.items())
        rev, *others = await self._run("count_tenants", replica, said, FRESH_MS)
        return int(rev), [parse(each.decode()) for each in others]


def parse(said: str) -> dict[str, TenantCounts]:
    """Return the counts by tenant of one report."""
    words = said.split()
    rows = (words[at : at + 4] for at in range(0, len(words), 4))
    return {tenant: TenantCounts(*map(int, numbers)) for tenant, *numbers in rows}
