"""The audit trail, over HTTP."""

from __future__ import annotations

import msgspec

from dhsched.client.models.base import UNSET, LeftOut, Optional


class AuditOut(msgspec.Struct, frozen=True):
    """One request that changes something: who asked, from where, and what came of it.

    `code` is the problem that it was refused with; empty if it was not. `key` is the id of the API key, empty where
    access is open; `worker` is set for a Worker's own token.
    """

    id: str
    at_ms: int
    endpoint: str
    path: str
    status: int
    code: str
    key: str
    role: str
    tenant: str
    worker: str
    address: str
    request_id: str
    replica: str


class AuditList(msgspec.Struct, frozen=True):
    """Entries of the audit trail, the latest first. `next` is the cursor for older ones; null if there are none."""

    entries: list[AuditOut]
    next: str | None
    cells_left_out: LeftOut | Optional = UNSET
