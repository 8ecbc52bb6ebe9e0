"""Lives over HTTP: create, get, list, end, history."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from dhsched.access.gate import for_tenant
from dhsched.client.models import lives as m
from dhsched.client.models.base import UNSET, LivePath
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.create import place_new_for
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.api.refusals import explanation_of, no_free_slot, too_many_lives
from dhsched.dispatch.commit import NoFreeSlot
from dhsched.dispatch.context import DispatchContext, retry_unknown
from dhsched.dispatch.telemetry.history import history_of
from dhsched.errors import Forbidden
from dhsched.ownership import outcomes as o
from dhsched.ownership.state import Live
from dhsched.ownership.steps.place import Create
from dhsched.placement import PlacementRequest
from dhsched.store.records.lives import LiveRow
from dhsched.types import check_id, check_nesting, check_worker, live_key, whole
from dhsched.web import YES, Endpoint, HeaderParameter, Problem, Reply, Request

Key = Annotated[str, whole(r"[!-~]{1,255}", description="Any printable ASCII without spaces.")]
IDEMPOTENCY_KEY = HeaderParameter(
    "Idempotency-Key", Key, "A name for this call: a repeated call with the same key is done once."
)
SCAN_MAX = 5_000  # Lives read for one page of a filtered list; past this the page ends, and its cursor goes on there.
SCAN_STEP = 500


class Lives(Part):
    """The endpoints of lives, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="create_live",
                method="POST",
                path="/v1/lives",
                handler=self.create,
                summary="Place a new live on a Worker.",
                tag="lives",
                body=m.CreateLive,
                query=p.CreateQuery,
                headers=[IDEMPOTENCY_KEY],
                replies={201: m.Placed, 200: m.Placed},
                problems=[
                    *("CONFLICT", "ENDED", "FULL", "STARTING", "WAITING"),
                    *("NOT_FOUND", "NO_ELIGIBLE_POOL", "STORE_FULL"),
                ],
            ),
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
                name="get_live",
                method="GET",
                path="/v1/lives/{live_id}",
                handler=self.get,
                summary="One live.",
                tag="lives",
                path_type=LivePath,
                replies={200: m.Live},
                problems=["NOT_FOUND"],
            ),
            Endpoint(
                name="end_live",
                method="POST",
                path="/v1/lives/{live_id}/end",
                handler=self.end,
                summary="End a live now, or after its pending input.",
                tag="lives",
                path_type=LivePath,
                body=m.End,
                replies={200: m.Ended},
                problems=["NOT_FOUND"],
            ),
            Endpoint(
                name="get_history",
                method="GET",
                path="/v1/lives/{live_id}/history",
                handler=self.history,
                summary="The generations of a live, the current one first.",
                tag="lives",
                path_type=LivePath,
                replies={200: m.History},
                problems=["NOT_FOUND"],
            ),
        ]

    async def create(self, asked: Request) -> Any:
        """Create a live and return where it was placed. Idempotent by live_id, or by Idempotency-Key without one."""
        began = time.perf_counter()
        body: m.CreateLive = asked.body
        live_id, create = self._live_id(asked, body), as_create(body)
        live = live_key(asked.caller.tenant, live_id)
        explained = asked.query.explain in YES
        if explained and not asked.caller.admin:
            raise Forbidden("only an admin's token may use explain, which names Workers and Pools; leave it out")
        request = await self.context.fleet.request(check_id(body.digital_id, "digital_id"))
        if request is None:
            raise no_digital_id(body.digital_id)
        attempt = await place_new_for(
            asked,
            self.context,
            live=live,
            operation=self.context.operation(),
            create=create,
            request=request,
            wait_s=asked.query.wait_s,
        )
        self.context.metrics.create_seconds.observe(time.perf_counter() - began)
        match attempt.outcome:
            case o.Committed() as done:
                why = explanation_of(self.context, attempt) if explained else None
                return Reply(placed(live_id, done, why), status=200 if done.again else 201)
            case o.Conflict():
                raise Problem(
                    "CONFLICT",
                    f"live {live_id} exists and was created with other parameters; get it, or choose another id",
                    live_id=live_id,
                )
            case o.Ended():
                raise ended(live_id)
            case o.Quota() as reached:
                raise too_many_lives(asked.caller.tenant, reached)
            case outcome if isinstance(outcome, NoFreeSlot):
                raise no_free_slot(self.context, live_id, attempt, admin=asked.caller.admin, explained=explained)
            case outcome:
                raise AssertionError(f"place(create) answered {outcome}")

    def _live_id(self, asked: Request, body: m.CreateLive) -> str:
        if isinstance(body.live_id, str):
            return body.live_id
        key = asked.header("Idempotency-Key")
        if key:
            return "lv-" + digest(asked.caller.tenant, key)
        return "lv-" + secrets.token_hex(8)

    async def get(self, asked: Request) -> m.Live:
        live_id = asked.path.live_id
        return live_out(live_id, await find_live(self.context, asked, live_id))

    async def list(self, asked: Request) -> m.LiveList:
        """Return a page of lives that match the filters, by name. It reads at most SCAN_MAX lives, then sets `next`."""
        query: p.ListQuery = asked.query
        tenant = asked.caller.tenant
        if isinstance(query.tenant, str):
            tenant = for_tenant(asked.caller, query.tenant).tenant
        after = "" if query.after is UNSET else check_id(query.after, "after")
        if query.worker is not UNSET:
            check_worker(query.worker)
        found: list[LiveRow] = []
        for _ in range(SCAN_MAX // SCAN_STEP):
            if isinstance(query.worker, str):
                names = await self.context.records.lives.names_on(query.worker, tenant, after, SCAN_STEP)
            else:
                names = await self.context.records.lives.names(tenant, after, SCAN_STEP)
            for row in await self.context.records.lives.rows(names):
                if self._wanted(query, row):
                    found.append(row)
                if len(found) == query.limit:
                    more = row.live != names[-1] or len(names) == SCAN_STEP
                    return live_list(found, row.live if more else None)
            if len(names) < SCAN_STEP:
                return live_list(found, None)
            after = names[-1].partition("/")[2]
        return live_list(found, f"{tenant}/{after}")

    def _wanted(self, query: p.ListQuery, row: LiveRow) -> bool:
        if query.state is not UNSET and row.state != query.state:
            return False
        if query.digital_id is not UNSET and row.digital_id != query.digital_id:
            return False
        if query.worker is not UNSET and row.worker != query.worker:
            return False
        if query.pool is not UNSET:
            worker = self.context.fleet.view.workers.get(row.worker)
            return worker is not None and worker.pool == query.pool
        return True

    async def end(self, asked: Request) -> m.Ended:
        live_id = asked.path.live_id
        live = live_key(asked.caller.tenant, live_id)
        after_pending = asked.body.after_pending
        outcome = await retry_unknown(
            "end",
            lambda: self.context.store.end_live(live=live, after_pending=after_pending),
            until=self.context.until(),
        )
        if isinstance(outcome, o.NotFound):
            raise not_found(live_id)
        return m.Ended(live_id, outcome.state)

    async def history(self, asked: Request) -> m.History:
        live_id = asked.path.live_id
        record = await find_live(self.context, asked, live_id)
        return m.History(live_id, await history_of(self.context, live_key(asked.caller.tenant, live_id), record))


async def find_live(context: DispatchContext, asked: Request, live_id: str) -> Live:
    record = await context.records.lives.get(live_key(asked.caller.tenant, live_id))
    if record is None:
        raise not_found(live_id)
    return record


async def find_digital_id(context: DispatchContext, digital_id: str) -> PlacementRequest:
    request = await context.fleet.request(digital_id)
    if request is None:
        raise no_digital_id(digital_id)
    return request


def no_digital_id(digital_id: str) -> Problem:
    return Problem(
        "NOT_FOUND",
        f"DigitalID {digital_id} does not exist; put it with PUT /v1/digital-ids/{digital_id}",
        digital_id=digital_id,
    )


def not_found(live_id: str) -> Problem:
    return Problem(
        "NOT_FOUND",
        f"live {live_id} does not exist: it was never created, or it ended so long ago that it is forgotten",
        live_id=live_id,
    )


def ended(live_id: str) -> Problem:
    return Problem("ENDED", f"live {live_id} has ended; create another one under another id", live_id=live_id)


def digest(*parts: str) -> str:
    """Return a short name that is unique to these parts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def as_create(body: m.CreateLive) -> Create:
    room = "" if body.room is UNSET else check_id(body.room, "room")
    metadata, config = as_json(body.metadata, "metadata"), as_json(body.config, "config")
    said = [body.digital_id, room, metadata.decode(), config.decode(), str(body.priority), str(body.immovable)]
    return Create(
        digital_id=body.digital_id,
        fingerprint=digest(*said),
        room=room,
        metadata=metadata,
        config=config,
        priority=body.priority,
        immovable=body.immovable,
    )


def as_json(value: dict[str, Any], field: str) -> bytes:
    """Return one spelling for equal objects, so that a retry by another client library is still the same create."""
    if not value:
        return b""
    check_nesting(value, field)
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (RecursionError, OverflowError, UnicodeEncodeError) as error:
        raise Problem("BAD_REQUEST", f"{field} cannot be stored: {error}", field=f"$.{field}") from error


def placed(live_id: str, done: o.Committed, explanation: Any = None) -> m.Placed:
    later = done.superseded_by
    return m.Placed(
        live_id=live_id,
        worker=done.generation.worker,
        epoch=done.generation.epoch,
        again=done.again,
        superseded_by=None if later is None else m.Generation(later.worker, later.epoch),
        explanation=explanation,
    )


def live_list(rows: Sequence[LiveRow], last: str | None) -> m.LiveList:
    return m.LiveList([summary(row) for row in rows], None if last is None else last.partition("/")[2])


def summary(row: LiveRow) -> m.LiveSummary:
    live_id = row.live.partition("/")[2]
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
    )


def crash_of(live: Live) -> m.CrashOut | None:
    rows = (live.current, *reversed(live.history))
    return next((m.CrashOut(row.epoch, row.worker, row.reason) for row in rows if row.reason), None)


def unread(stored: bytes) -> Any:
    """Return stored JSON to be sent as it is, without decoding it."""
    return msgspec.Raw(stored or b"{}")


def live_out(live_id: str, live: Live) -> m.Live:
    move, current = live.move, live.current
    return m.Live(
        live_id=live_id,
        digital_id=live.digital_id,
        room=live.room or live_id,
        state=live.state,
        worker=live.selected,
        epoch=live.epoch,
        claimed=live.active is not None,
        priority=live.priority,
        immovable=live.immovable,
        metadata=unread(live.metadata),
        config=unread(live.config),
        cause=current.cause,
        operation=current.operation,
        committed_at_ms=current.committed_at,
        claimed_at_ms=current.claimed_at,
        first_ack_at_ms=current.first_ack_at,
        ended_at_ms=live.ended_at,
        appended=live.appended,
        released=live.released,
        acked=live.acked,
        pending=live.appended - live.acked,
        dropped={"interrupt": live.dropped_interrupt, "end": live.dropped_end, "poison": live.dropped_poison},
        dead_letters=len(live.dead),
        stalled=live.stalled is not None and live.stalled == live.cursors,
        tries=live.tries,
        waiting_for=list(live.waits),
        move=None if move is None else m.MoveOut(move.target, move.number, move.expires, move.hold),
        crash=crash_of(live),
    )
