"""Pending input of tenants: one replica at a time asks the store what the input of each tenant takes.

Only tenants with a `pending_bytes_max` are measured, a page of lives at a time, with a pause between two pages: so a
measurement of many lives takes longer, and never more than a small part of the store's time. Nothing is counted where
input is pushed and acked, and what is accepted between two measurements comes on top of the limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from dhsched.access.quotas import Quotas
from dhsched.access.tenants import EVERY_OTHER
from dhsched.store.records import Records
from dhsched.store.records import tenants as records_of_tenants

PENDING_S = 1.0  # Time between two measurements, on average, if no other replica measures.
PAGE_PAUSE_S = 0.01  # Between two pages, so that they take less than a fifth of the store's time.


class PendingInput:
    """The measurements of one replica. `records` must be those of the link that takes steps: a measurement writes."""

    def __init__(self, records: Records, quotas: Quotas) -> None:
        self._records = records
        self._quotas = quotas

    async def round(self) -> None:
        """Measure the pending input of all tenants that have a limit, if any has and it is this replica's turn."""
        if not (names := self._quotas.measured):
            return
        found: Counter[str] = Counter()
        began_ms = 0
        for tenants in pages_of(names):
            after = ""
            while True:
                page = await self._records.tenants.measure_pending(tenants, after, turn=not began_ms)
                if not page.at_ms:
                    return
                began_ms = began_ms or page.at_ms
                found.update(page.bytes)
                if not page.after:
                    break
                after = page.after
                tenant = after.partition("/")[0]
                tenants = tenants[tenants.index(tenant) :] if tenants else ()
                await asyncio.sleep(PAGE_PAUSE_S)
        limited = {tenant: count for tenant, count in found.items() if self._quotas.limits_of(tenant).pending_bytes_max}
        await self._records.tenants.keep_pending(began_ms, limited)


def pages_of(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return which tenants are measured together. No names are all tenants: so if `*` has a limit."""
    if EVERY_OTHER in names:
        return [()]
    size = records_of_tenants.MEASURE_TENANTS
    return [names[at : at + size] for at in range(0, len(names), size)]
