"""Lives over HTTP: get, change, end, history. create.py creates them, live_lists.py lists them."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from dhsched.client.models import lives as m
from dhsched.client.models.base import UNSET, LivePath
from dhsched.dispatch.api.create import as_json, as_labels, refuse_when_store_is_full
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.api.refusals import ended, no_digital_id
from dhsched.dispatch.commit import retry_unknown
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.devices import device_of
from dhsched.dispatch.telemetry.history import history_of
from dhsched.ownership import outcomes as o
from dhsched.ownership.state import Live
from dhsched.placement import PlacementRequest
from dhsched.types import live_key
from dhsched.web import Endpoint, Problem, Request


class Lives(Part):
    """The endpoints of lives, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
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
                name="change_live",
                method="PATCH",
                path="/v1/lives/{live_id}",
                handler=self.change,
                summary="Replace the metadata or the labels of a live.",
                tag="lives",
                path_type=LivePath,
                body=m.ChangeLive,
                replies={200: m.Live},
                problems=["NOT_FOUND", "ENDED", "STORE_FULL"],
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

    async def get(self, asked: Request) -> m.Live:
        live_id = asked.path.live_id
        live = await find_live(self.context, asked, live_id)
        key = live_key(asked.caller.tenant, live_id)
        return live_out(live_id, live, await device_of(self.context, key, live.selected, live.epoch))

    async def change(self, asked: Request) -> m.Live:
        """Replace what is given, and return the live. A runtime gets the new metadata with its next generation."""
        live_id, body = asked.path.live_id, asked.body
        refuse_when_store_is_full(self.context)
        await find_unended(self.context, asked, live_id)
        metadata = None if body.metadata is UNSET else as_json(body.metadata, "metadata")
        labels = None if body.labels is UNSET else as_labels(body.labels)
        live = live_key(asked.caller.tenant, live_id)
        describe = partial(self.context.store.records.lives.describe, live, metadata, labels)
        await retry_unknown(self.context, "change", describe)
        return await self.get(asked)

    async def end(self, asked: Request) -> m.Ended:
        live_id = asked.path.live_id
        live = live_key(asked.caller.tenant, live_id)
        after_pending = asked.body.after_pending
        outcome = await retry_unknown(
            self.context,
            "end",
            lambda: self.context.store.end_live(live=live, after_pending=after_pending),
        )
        if isinstance(outcome, o.NotFound):
            raise not_found(live_id)
        return m.Ended(live_id, outcome.state)

    async def history(self, asked: Request) -> m.History:
        live_id = asked.path.live_id
        record = await find_live(self.context, asked, live_id)
        rows = await history_of(self.context, live_key(asked.caller.tenant, live_id), record)
        return m.History(live_id, rows, record.created_at, record.ended_at, record.expired or "")


async def find_live(context: DispatchContext, asked: Request, live_id: str) -> Live:
    record = await context.records.lives.get(live_key(asked.caller.tenant, live_id))
    if record is None:
        raise not_found(live_id)
    return record


async def find_unended(context: DispatchContext, asked: Request, live_id: str) -> Live:
    record = await find_live(context, asked, live_id)
    if record.state == "ended":
        raise ended(live_id)
    return record


async def find_digital_id(context: DispatchContext, digital_id: str) -> PlacementRequest:
    request = await context.fleet.request(digital_id)
    if request is None:
        raise no_digital_id(digital_id)
    return request


def not_found(live_id: str) -> Problem:
    return Problem(
        "NOT_FOUND",
        f"live {live_id} does not exist: it was never created, or it ended so long ago that it is forgotten",
        live_id=live_id,
    )


def as_s(milliseconds: int) -> float | None:
    return milliseconds / 1_000 if milliseconds else None


def crash_of(live: Live) -> m.CrashOut | None:
    rows = (live.current, *reversed(live.history))
    return next((m.CrashOut(row.epoch, row.worker, row.reason) for row in rows if row.reason), None)


def unread(stored: bytes) -> Any:
    """Return stored JSON to be sent as it is, without decoding it."""
    return msgspec.Raw(stored or b"{}")


def live_out(live_id: str, live: Live, device: str) -> m.Live:
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
        labels=live.labels.decode().split(),
        created_at_ms=live.created_at,
        idle_since_ms=live.seen[1] if live.seen[0] == live.appended else None,
        idle_s=as_s(live.idle_ms),
        max_s=as_s(live.max_ms),
        expired=live.expired or "",
        crash=crash_of(live),
        device=device,
    )
