"""`GET /v1/events`: fleet events, as a list or as a stream of server-sent events.

    id: 1753600000000-0
    event: worker_lost
    data: {"id": "1753600000000-0", "kind": "worker_lost", "worker": "gpu-a#7", ...}

A stream reads the log a few times a second, which is often enough for people and dashboards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec

from dhsched.client.models import fleet as m
from dhsched.client.models.base import UNSET, Optional, Strict
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.followers import Followers
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.context import DispatchContext
from dhsched.errors import BadValue, StoreError
from dhsched.store.records.events import Logged
from dhsched.types import whole
from dhsched.web import Endpoint, HeaderParameter, Request

POLL_S = 0.3  # Time between two readings of the log for one stream.
PAGE = 500

ONE = r"[0-9]{1,15}(-[0-9]{1,15})?"
Cursor = Annotated[str, whole(ONE, description="An event's id, or a time in ms.")]
Cursors = Annotated[
    str,
    whole(
        rf"{ONE}|({ONE})?(,({ONE})?){{1,63}}",
        description="An event's id, or a time in ms; with several cells, the cursor of each, separated by commas.",
    ),
]
LAST_EVENT_ID = HeaderParameter("Last-Event-ID", Cursors, "What a stream that broke off goes on after.")


class EventsQuery(Strict):
    """Events after the cursor `after`, the oldest first; without a cursor, the latest events."""

    after: Cursors | Optional = UNSET
    limit: p.Limit = p.PAGE_DEFAULT


class EventFeed(Part):
    """The endpoint of events, of one replica."""

    def __init__(self, context: DispatchContext) -> None:
        super().__init__(context)
        self._followers = Followers(context, "event streams")

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="list_events",
                method="GET",
                path="/v1/events",
                handler=self.get,
                summary="Fleet events; with Accept: text/event-stream, as a stream.",
                tag="events",
                query=EventsQuery,
                headers=[LAST_EVENT_ID],
                replies={200: m.EventList},
            )
        ]

    async def get(self, asked: Request) -> Any:
        query: EventsQuery = asked.query
        after = query.after if isinstance(query.after, str) else asked.header("Last-Event-ID")
        if "," in after:
            raise BadValue("the cursor is of a deployment with several cells; begin without one")
        if "text/event-stream" in asked.header("Accept"):
            found = await self._read(after, query.limit)  # Before the first byte: a failing store answers a problem.
            return await self._followers.send(asked, self._rounds(found, after or "0-0"))
        found = await self._read(after, query.limit)
        return m.EventList([event_out(each) for each in found], found[-1].id if found else after or None)

    async def _read(self, after: str, limit: int) -> list[Logged]:
        records = self.context.records
        if after:
            return await records.events.after(after, limit)
        return await records.events.last(limit)

    async def _rounds(self, found: list[Logged], after: str) -> AsyncIterator[list[bytes]]:
        """Yield the events of each reading of the log, `found` first, until this replica stops."""
        while not self.context.service.stopping:
            yield [encoded(each) for each in found]
            after = found[-1].id if found else after
            if len(found) < PAGE:
                await asyncio.sleep(POLL_S)
            found = await self._next(after)

    async def _next(self, after: str) -> list[Logged]:
        """Return the events after `after`; none while the store cannot be read."""
        try:
            return await self._read(after, PAGE)
        except StoreError:
            return []


def event_out(logged: Logged) -> m.EventOut:
    event = logged.event
    tenant, _, live_id = event.live.partition("/")
    return m.EventOut(
        id=logged.id,
        at_ms=logged.at_ms,
        kind=event.kind,
        replica=event.replica,
        by=event.by,
        worker=event.worker,
        tenant=tenant,
        live_id=live_id,
        numbers=event.numbers,
    )


def encoded(logged: Logged) -> bytes:
    head = f"id: {logged.id}\nevent: {logged.event.kind}\ndata: "
    return head.encode() + msgspec.json.encode(event_out(logged)) + b"\n\n"
