"""`GET /v1/audit`: who has asked for which change, the latest first."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dhsched.client.models import audit as m
from dhsched.client.models.base import UNSET, Optional, Strict
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.events import Cursor
from dhsched.dispatch.api.part import Part
from dhsched.store.records.audit import AuditedRequest, AuditEntry
from dhsched.types import Id
from dhsched.web import Endpoint, Request

PAGE = 1_000
READ_MAX = 20_000  # Entries that one request reads: with a filter that fits nothing, all that there are.


class AuditQuery(Strict):
    """Entries before the cursor `before`, or the latest. A filter leaves out what does not fit it."""

    before: Cursor | Optional = UNSET
    limit: p.Limit = p.PAGE_DEFAULT
    key: Id | Optional = UNSET
    tenant: Id | Optional = UNSET
    endpoint: Id | Optional = UNSET


FILTERS = ("key", "tenant", "endpoint")


class AuditTrail(Part):
    """The endpoint of the audit trail, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="list_audit",
                method="GET",
                path="/v1/audit",
                handler=self.get,
                summary="Who has asked for which change, and what came of it; the latest first.",
                tag="access",
                query=AuditQuery,
                replies={200: m.AuditList},
            )
        ]

    async def get(self, asked: Request) -> m.AuditList:
        query: AuditQuery = asked.query
        fits = filter_of(query)
        cursor = query.before if isinstance(query.before, str) else ""
        found: list[AuditEntry] = []
        # Without a filter every entry is shown: read no more than these, and one to know whether there are others.
        filtered = any(isinstance(getattr(query, name), str) for name in FILTERS)
        size = PAGE if filtered else min(PAGE, query.limit + 1)
        for _ in range(0, READ_MAX, size):
            page = await self.context.records.audit.before(cursor, size)
            found += [each for each in page if fits(each.request)]
            if len(page) < size or len(found) >= query.limit:
                break
            cursor = page[-1].id
        shown = found[: query.limit]
        return m.AuditList([audited_out(each) for each in shown], shown[-1].id if len(found) > len(shown) else None)


def filter_of(query: AuditQuery) -> Callable[[AuditedRequest], bool]:
    wanted = {name: value for name in FILTERS if isinstance(value := getattr(query, name), str)}
    return lambda asked: all(getattr(asked, name) == value for name, value in wanted.items())


def audited_out(found: AuditEntry) -> m.AuditOut:
    return m.AuditOut(id=found.id, at_ms=found.at_ms, **msgspec.structs.asdict(found.request))
