"""Tells the store what this replica counts of each tenant, hears what the others do, and reads limits that changed."""

from __future__ import annotations

import secrets

from dhsched.access.quotas import Quotas
from dhsched.access.tenants import TENANTS, TenantLimits
from dhsched.access.usage import Usage
from dhsched.store.records import Records

REPORT_S = 1.0  # Time between two reports, on average.


class QuotaReports:
    """The reports of one replica. `records` must be those of the link that takes steps: a report writes."""

    def __init__(self, records: Records, replica: str, quotas: Quotas, usage: Usage | None = None) -> None:
        self._records = records
        # A replica that comes back under its name numbers its batches anew.
        self._replica = f"{replica}/{secrets.token_hex(4)}"
        self._quotas = quotas
        self._usage = usage or Usage()
        self._config_rev = -1

    async def read_limits(self) -> None:
        """Read the limits of all tenants. The revision is read first, so that a change meanwhile is read again."""
        rev = await self._records.config.rev()
        self._quotas.set_limits(await self._records.config.all(TENANTS, TenantLimits))
        self._config_rev = rev

    async def round(self) -> None:
        """Report once: one call, and two more after a change of the configuration."""
        batch = self._usage.next_batch()
        rev, others = await self._records.tenants.report(
            self._replica, self._quotas.report(), batch=batch.number, items=batch.items
        )
        self._usage.written(batch)
        self._quotas.learn(others)
        if rev != self._config_rev:
            await self.read_limits()
