"""Tells the store what this replica counts of each tenant, hears what the others do, and reads limits that changed."""

from __future__ import annotations

import secrets

from dhsched.access.quotas import Quotas
from dhsched.access.tenants import TENANTS, TenantLimits
from dhsched.access.usage import Usage
from dhsched.store.records import Records

REPORT_S = 1.0  # Time between two reports, on average.


class QuotaReports:
    """The reports of one replica. `writes` are the records of the link that takes steps, `reads` those of another."""

    def __init__(
        self, replica: str, quotas: Quotas, usage: Usage | None = None, *, reads: Records, writes: Records
    ) -> None:
        self._reads = reads
        self._writes = writes
        # A replica that comes back under its name numbers its batches anew.
        self._replica = f"{replica}/{secrets.token_hex(4)}"
        self._quotas = quotas
        self._usage = usage or Usage()
        self._config_rev = -1

    async def read_limits(self) -> None:
        """Read the limits of all tenants. The revision is read first, so that a change meanwhile is read again."""
        rev = await self._reads.config.rev()
        self._quotas.set_limits(await self._reads.config.all(TENANTS, TenantLimits))
        self._config_rev = rev

    async def round(self) -> None:
        """Report once: one call, and two more after a change of the configuration. Where there is nothing to tell, only
        the revision of the configuration is read."""
        if self._quotas.shared or self._usage.unwritten:
            batch = self._usage.next_batch()
            heard = await self._writes.tenants.report(
                self._replica, self._quotas.report(), batch=batch.number, items=batch.items
            )
            self._usage.written(batch)
            self._quotas.learn(heard.others, heard.pending)
            rev = heard.config_rev
        else:
            rev = await self._reads.config.rev()
        if rev != self._config_rev:
            await self.read_limits()
