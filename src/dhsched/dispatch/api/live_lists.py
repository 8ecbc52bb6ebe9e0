"""Many lives at once over HTTP: list those that match filters, and end them."""

from __future__ import annotations

import asyncio

from dhsched.access.gate import for_tenant
from dhsched.client.models import lives as m
from dhsched.client.models.base import UNSET
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.api.selection import Selection, id_of
from dhsched.dispatch.commit import retry_unknown
from dhsched.ownership import outcomes as o
from dhsched.store.records.audit import AuditedRequest
from dhsched.store.records.lives import LiveRow
from dhsched.web import Endpoint, Problem, Request

ENDS_AT_ONCE = 16  # Lives that one request ends at the same time; the next ones wait.


class LiveLists(Part):
    """The endpoints that select lives by filters, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="list_lives",
                method="GET",
                path="/v1/lives",
                handler=self.list,
                summary="Lives by name, a page at a time.",
                tag="lives",
                query=p.ListQuery,
                replies={200: m.LiveList},
            ),
            Endpoint(
                name="end_lives",
                method="POST",
                path="/v1/end-lives",
                handler=self.end,
                summary="End the lives that match filters, some at a time.",
                tag="lives",
                body=m.EndLives,
                replies={200: m.EndedLives},
                problems=["UNBOUNDED"],
            ),
        ]

    async def list(self, asked: Request) -> m.LiveList:
        """Return a page of lives that match the filters, by name."""
        query: p.ListQuery = asked.query
        tenant = asked.caller.tenant
        if isinstance(query.tenant, str):
            tenant = for_tenant(asked.caller, query.tenant).tenant
        after = query.after if isinstance(query.after, str) else ""
        found, last = await Selection(tenant, query).page(self.context, after, query.limit)
        return m.LiveList([summary(row) for row in found], last)

    async def end(self, asked: Request) -> m.EndedLives:
        """End up to `limit` lives that match, and return their ids. If a live cannot be ended, end the others, then
        raise its error: the caller repeats the call."""
        body: m.EndLives = asked.body
        refuse_without_filter(body)
        after = body.after if isinstance(body.after, str) else ""
        selection = Selection(asked.caller.tenant, body, not_ended=True)
        found, last = await selection.page(self.context, after, body.limit)
        turns = asyncio.Semaphore(ENDS_AT_ONCE)
        until = asyncio.get_running_loop().time() + self.context.settings.deadline_s

        async def end_one(live: str) -> str | None:
            async with turns:
                outcome = await retry_unknown(
                    self.context,
                    "end",
                    lambda: self.context.store.end_live(live=live, after_pending=body.after_pending),
                    until=until,
                )
            if isinstance(outcome, o.NotFound):
                return None
            self._note_end(asked, id_of(live))
            return id_of(live)

        ended: list[str] = []
        for outcome in await asyncio.gather(*(end_one(row.live) for row in found), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome is not None:
                ended.append(outcome)
        return m.EndedLives(ended, last is not None, last)

    def _note_end(self, asked: Request, live_id: str) -> None:
        """Note in the audit trail which live was ended: the line of the request has only its path."""
        caller = asked.caller
        self.context.audit.note(
            AuditedRequest(
                endpoint="end_lives",
                path=f"/v1/lives/{live_id}/end",
                status=200,
                request_id=asked.request_id,
                replica=self.context.replica,
                key=caller.key,
                role=caller.role,
                tenant=caller.tenant,
                worker=caller.worker,
                address=asked.request.remote or "",
            )
        )


def refuse_without_filter(body: m.EndLives) -> None:
    """Raise UNBOUNDED for a body without any filter."""
    if all(getattr(body, name) is UNSET for name in m.LiveFilters.__struct_fields__):
        raise Problem("UNBOUNDED", "no filter is given, so every live would end; give at least one")


def summary(row: LiveRow) -> m.LiveSummary:
    live_id = id_of(row.live)
    return m.LiveSummary(
        live_id=live_id,
        digital_id=row.digital_id,
        room=row.room or live_id,
        state=row.state,
        worker=row.worker,
        epoch=row.epoch,
        claimed=row.claimed,
        priority=row.priority,
        pending=row.pending,
        cause=row.cause,
        committed_at_ms=row.committed_at,
        moving_to=row.moving_to,
        waiting=row.waiting,
        stalled=row.stalled,
        labels=list(row.labels),
        created_at_ms=row.created_at,
        idle_since_ms=row.idle_since,
        expired=row.expired,
    )
