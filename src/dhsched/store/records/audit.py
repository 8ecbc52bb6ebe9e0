"""The audit trail: who has asked for which change, and what came of it. One bounded stream per cell, for people.

Nothing is decided by it. An entry's id is the store's time in milliseconds and a number, as with events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from dhsched.store.link.link import Arg
from dhsched.store.records.part import Part

AUDIT_MAX = 20_000  # Older entries are dropped; the server may keep up to one internal node more.
FIELD = "asked"


class AuditedRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request that changes something. `code` is the problem that it was refused with; empty if it was not."""

    endpoint: str
    path: str
    status: int
    request_id: str
    replica: str
    code: str = ""
    key: str = ""
    role: str = ""
    tenant: str = ""
    worker: str = ""
    address: str = ""


class AuditEntry(NamedTuple):
    """An entry with its position in the stream."""

    id: str
    request: AuditedRequest

    @property
    def at_ms(self) -> int:
        return int(self.id.partition("-")[0])


_decode = msgspec.json.Decoder(AuditedRequest).decode


class AuditRecords(Part):
    """The audit trail of a cell."""

    def write(self, requests: Sequence[AuditedRequest], /, *, deadline_s: float) -> asyncio.Future[Any]:
        """Add entries and drop the oldest beyond AUDIT_MAX."""
        log: list[Arg] = ["audit", FIELD, AUDIT_MAX]
        entries = map(msgspec.json.encode, requests)
        return self._link.run("write_log", [self._keys.cell], [*log, *entries], deadline_s=deadline_s)

    async def before(self, cursor: str, limit: int) -> list[AuditEntry]:
        """Return entries before the cursor, or the latest if it is empty; the latest first."""
        found = await self._call("XREVRANGE", "audit", "", f"({cursor}" if cursor else "+", "-", "COUNT", limit)
        return [AuditEntry(entry_id.decode(), _decode(fields[1])) for entry_id, fields in found]
