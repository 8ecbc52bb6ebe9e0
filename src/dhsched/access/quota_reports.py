"""Tells the store what this replica counts of each tenant, hears what the others do, and reads limits that changed."""

from __future__ import annotations

import secrets

from dhsched.access.quotas import Quotas
from dhsched.access.tenants import TENANTS, TenantLimits
from dhsched.access.usage import Usage
from dhsched.store.records import Records

REPORT_S = 1.0  # Time between two reports, on average.


class QuotaReports:
    """The reports of one replica in one cell. `writes` are the records of the link that takes steps, `reads` those of
    another. A replica counts each tenant once, for all of its cells: it tells and hears the counts in the first cell
    only (`counts`); from the others it hears what input is pending there."""

    def __init__(
        self,
        replica: str,
        quotas: Quotas,
        usage: Usage | None = None,
        *,
        reads: Records,
        writes: Records,
        counts: bool = True,
    ) -> None:
        self._reads = reads
        self._writes = writes
        # A replica that comes back under its name numbers its batches anew.
        self._replica = f"{replica}/{secrets.token_hex(4)}"
        self._quotas = quotas
        self._usage = usage or Usage()
        self._config_rev = -1
        self._counts = counts

    async def read_limits(self) -> None:
        """Read the limits of all tenants. The revision is read first, so that a change meanwhile is read again. Another
        cell than the first has only a copy, which counts as long as nothing better was read."""
        rev = await self._reads.config.rev()
        limits = await self._reads.config.all(TENANTS, TenantLimits)
        if self._counts or not self._quotas.limits_are_read:
            self._quotas.set_limits(limits)
            self._quotas.limits_are_read = self._counts
        self._config_rev = rev

    async def round(self) -> None:
        """Report once: one call, and two more after a change of the configuration. Where there is nothing to tell or to
        hear, only the revision of the configuration is read."""
        quotas = self._quotas
        if (quotas.shared if self._counts else quotas.measured) or self._usage.unwritten:
            batch = self._usage.next_batch()
            heard = await self._writes.tenants.report(
                self._replica, quotas.report() if self._counts else {}, batch=batch.number, items=batch.items
            )
            self._usage.written(batch)
            if self._counts:
                quotas.learn(heard.others)
            quotas.learn_pending(heard.pending, self._reads.keys.cell_name)
            rev = heard.config_rev
        else:
            rev = await self._reads.config.rev()
        if rev != self._config_rev:
            await self.read_limits()
