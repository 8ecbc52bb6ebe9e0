"""`GET /v1/changes`: Workers and lives as they change, as server-sent events.

    id: 5d1c09aa.17
    event: changes
    data: {"workers": [{"worker": "gpu-a#7", ...}], "lives": [{"live_id": "L-1", "state": "running", ...}]}

Without `Accept: text/event-stream` the answer is the cursor of this moment. A reader without a cursor, or with one that
this replica does not keep, is given all Workers first (event `all`, a page at a time): it forgets what it knew, and
reads again what else it shows. An app is given the lives of its tenant alone. With `summary=true` readers of the fleet
are given an event `summary` every two seconds too, which is made once for all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec

from dhsched.access.callers import Caller
from dhsched.client.models import summary as m
from dhsched.client.models.base import UNSET, Optional, Strict
from dhsched.dispatch.api.followers import Followers
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.api.summary import OVERVIEW_S, SummaryView
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.view.changes import ChangeFeed
from dhsched.errors import BadValue
from dhsched.tasks import is_set_within
from dhsched.types import whole
from dhsched.web import Endpoint, HeaderParameter, Request

PAGE = 200  # Workers of one event `all`.
WAIT_S = 5.0  # Without a batch for this long a round without events is sent: the stream notices a reader that is gone.

ONE = r"[0-9a-f]{8}\.[0-9]{1,15}"
Cursor = Annotated[
    str, whole(rf"{ONE}|({ONE})?(,({ONE})?){{1,63}}", description="The id of the last event that was read.")
]
LAST_EVENT_ID = HeaderParameter("Last-Event-ID", Cursor, "What a stream that broke off goes on after.")


class ChangesQuery(Strict):
    """The changes after the cursor `after`; with `summary` also the deployment as a whole, every two seconds."""

    after: Cursor | Optional = UNSET
    summary: bool = False


class ChangesFeed(Part):
    """The endpoint of changes, of one replica."""

    def __init__(self, context: DispatchContext, feed: ChangeFeed, summaries: SummaryView) -> None:
        super().__init__(context)
        self._feed = feed
        self._summaries = summaries
        self._followers = Followers(context, "change feeds")

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="follow_changes",
                method="GET",
                path="/v1/changes",
                handler=self.get,
                summary="Workers and lives as they change, with Accept: text/event-stream; else the cursor of now.",
                tag="fleet",
                query=ChangesQuery,
                headers=[LAST_EVENT_ID],
                replies={200: m.ChangeCursor},
            )
        ]

    async def get(self, asked: Request) -> Any:
        if "text/event-stream" not in asked.header("Accept"):
            table = await self._feed.now()
            return m.ChangeCursor(f"{self._feed.boot}.{table.number}", len(table.known))
        after = asked.query.after if isinstance(asked.query.after, str) else asked.header("Last-Event-ID")
        if "," in after:
            raise BadValue("the cursor is of a deployment with several cells; begin without one")
        with_summary = asked.query.summary and asked.caller.every_tenant
        return await self._followers.send(asked, self._rounds(asked.caller, after, with_summary))

    async def _rounds(self, caller: Caller, after: str, with_summary: bool) -> AsyncIterator[list[bytes]]:
        """Yield what changed, in batches, until this replica stops."""
        feed = self._feed
        shown: m.Overview | None = None
        boot, _, number = after.partition(".")
        at = int(number) if boot == feed.boot else -1
        with feed.reading():
            while not self.context.service.stopping:
                table, batched = feed.table, feed.batched
                batches = table.after(at) if boot == feed.boot and at >= 0 else None
                if batches is None and table.whole:
                    boot, at = feed.boot, table.number
                    yield encode_all(caller, [each.now for each in table.known.values()], f"{boot}.{at}")
                    continue
                yield [encode(caller, batch, f"{boot}.{at + n}") for n, batch in enumerate(batches or (), start=1)]
                at = table.number if batches is not None else at
                if with_summary:
                    before, shown = shown, await self._summaries.overview()
                    yield [event("summary", shown, "")] if shown is not None and shown is not before else []
                if not batches:
                    await is_set_within(OVERVIEW_S if with_summary else WAIT_S, batched)


def encode_all(caller: Caller, workers: list[m.WorkerNow], cursor: str) -> list[bytes]:
    """Return all Workers as events; only the last has the cursor, so that a broken stream begins again."""
    shown = workers if caller.every_tenant else []
    pages = [shown[first : first + PAGE] for first in range(0, len(shown), PAGE)] or [[]]
    last = len(pages) - 1
    return [
        event("all", m.AllWorkers(page, n == 0, n == last), cursor if n == last else "") for n, page in enumerate(pages)
    ]


def encode(caller: Caller, batch: m.Changes, cursor: str) -> bytes:
    """Return a batch as this caller may see it. A batch without anything for the caller still moves the cursor."""
    if not caller.every_tenant:
        batch = m.Changes(lives=[each for each in batch.lives if each.tenant == caller.tenant])
    return event("changes", batch, cursor)


def event(name: str, data: Any, cursor: str) -> bytes:
    head = (f"id: {cursor}\n" if cursor else "") + f"event: {name}\ndata: "
    return head.encode() + msgspec.json.encode(data) + b"\n\n"
