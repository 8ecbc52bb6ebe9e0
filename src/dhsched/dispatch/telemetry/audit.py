"""The audit trail of one replica: each request that changes something, or was refused to, with who asked for it.

Input is not in it: an item is in its live's own record, and there are thousands a second. Nor are requests without a
valid token, which anybody may send in any number: those are counted (`dhsched_requests_total`), and belong to nobody.
"""

from __future__ import annotations

import structlog
from prometheus_client import CollectorRegistry, Counter

from dhsched.store.records.audit import AuditedRequest, AuditRecords
from dhsched.store.records.writer import WRITE_S, Writer

log = structlog.get_logger(__name__)


class Audit:
    """The writer of the audit trail."""

    def __init__(self, records: AuditRecords, *, registry: CollectorRegistry) -> None:
        self._writer = Writer("entry of the audit trail", records.write, self._drop)
        self.note = self._writer.write
        self.dropped = Counter(
            "dhsched_audit_dropped_total", "Entries of the audit trail that could not be written.", registry=registry
        )

    async def written(self, wait_s: float = WRITE_S) -> None:
        """Wait up to `wait_s` until all entries are written or dropped: for a replica that stops, and for tests."""
        await self._writer.written(wait_s)

    def _drop(self, request: AuditedRequest, reason: str) -> None:
        self.dropped.inc()
        log.warning(
            "an entry of the audit trail could not be written",
            endpoint=request.endpoint,
            path=request.path,
            key=request.key,
            status=request.status,
            request_id=request.request_id,
            reason=reason,
        )
