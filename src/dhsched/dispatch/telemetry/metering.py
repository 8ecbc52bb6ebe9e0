"""Live-seconds of tenants: one replica at a time adds the time that has passed, once for each live that has not ended.

The store counts the lives of a tenant by their names, so a metering costs by the number of tenants, not of lives. A
live that begins or ends between two meterings is counted as if it did so at one of them. A metering that fails half-way
is not repeated: what it has not added is lost, and nothing is added twice.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from dhsched.store.records import Records
from dhsched.web.figures import TenantTotals

GAP_MIN_S = 60.0  # After a longer time without any metering only so much is added, or two periods if they are longer.


class Metering:
    """The metering of one replica. `records` must be those of the link that takes steps: a metering writes."""

    def __init__(self, records: Records, registry: CollectorRegistry, period_s: float) -> None:
        self._records = records
        self._gap_max_ms = round(1000 * max(GAP_MIN_S, 2 * period_s))
        self._live_seconds = TenantTotals(
            "dhsched_tenant_live_seconds_total", "Seconds of lives, of the meterings that this replica did."
        )
        registry.register(self._live_seconds)

    async def round(self) -> None:
        """Meter all tenants, if it is this replica's turn."""
        page = await self._records.tenants.meter_lives(gap_max_ms=self._gap_max_ms)
        while True:
            for tenant, lives in page.lives.items():
                self._live_seconds.add(tenant, lives * page.elapsed_ms / 1000)
            if not page.after:
                return
            page = await self._records.tenants.meter_lives(page.after, page.elapsed_ms, gap_max_ms=self._gap_max_ms)
