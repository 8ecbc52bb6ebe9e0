"""Tells the other replicas what this one counts of each tenant, and reads limits that have changed."""

from __future__ import annotations

from dhsched.access.quotas import Quotas
from dhsched.access.tenants import TENANTS, TenantLimits
from dhsched.store.records import Records

REPORT_S = 1.0  # Time between two reports, on average.


class QuotaReports:
    """The reports of one replica. `records` must be those of the link that takes steps: a report writes."""

    def __init__(self, records: Records, replica: str, quotas: Quotas) -> None:
        self._records = records
        self._replica = replica
        self._quotas = quotas
        self._config_rev = -1

    async def read_limits(self) -> None:
        """Read the limits of all tenants. The revision is read first, so that a change meanwhile is read again."""
        rev = await self._records.config.rev()
        self._quotas.set_limits(await self._records.config.all(TENANTS, TenantLimits))
        self._config_rev = rev

    async def round(self) -> None:
        """Report once: one call, and one more pair after a change of the configuration."""
        rev, others = await self._records.tenants.report(self._replica, self._quotas.report())
        self._quotas.learn(others)
        if rev != self._config_rev:
            await self.read_limits()
