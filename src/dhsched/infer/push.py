"""PushText over HTTP: `POST /v1/lives/{live_id}/text`, one item per request. Accepted means stored.

A request has an id, from its `request_id` or its Idempotency-Key: the same id again is the same item, however often a
client repeats it. For a request without an id the controller makes one: its own retries are safe then, the client's
are not.

Items that a room passes on from its viewers are kept apart: their ids have a namespace of their own, and they are
accepted only while the live's queue is filled to less than one part in VIEWERS_SHARE, so that the app always finds
space. Who sent such an item is noted for the live's events (events.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import structlog

from dhsched.client.models import input as m
from dhsched.client.models.base import LivePath
from dhsched.errors import StoreError, StoreUnavailable
from dhsched.infer.append_rules import RETRY_S, Attempts, new_request, payload_of, refusal, store_full
from dhsched.infer.context import InferContext
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import unmarked
from dhsched.store.records.lives import ViewerItem
from dhsched.store.steps.redis import Append
from dhsched.types import Id, live_key
from dhsched.web import Endpoint, HeaderParameter, Problem, Request

log = structlog.get_logger(__name__)

VIEWERS_SHARE = 4  # Of `pending_max`, one part in so many is open to viewers.
VIEWER = "viewer:"  # Before a viewer's request id. No id has a colon, so no app's id is among them.
IDEMPOTENCY_KEY = HeaderParameter("Idempotency-Key", Id, "The request's id, where the body has none.")


def endpoints(context: InferContext) -> Sequence[Endpoint]:
    async def push_text(asked: Request) -> m.Pushed:
        """Store one item; return its number in the live's input, or that it was stored before."""
        began = time.perf_counter()
        body: m.PushText = asked.body
        live_id = asked.path.live_id
        live = live_key(asked.caller.tenant, live_id)
        if (problem := store_full(context.memory_share, context.settings.memory_max)) is not None:
            raise problem
        if (
            body.kind != "interrupt"
            and (over := context.service.quotas.refuse_pending(asked.caller.tenant)) is not None
        ):
            raise over
        given = body.request_id if isinstance(body.request_id, str) else asked.request.headers.get(IDEMPOTENCY_KEY.name)
        request = given or new_request()
        payload = payload_of(body.kind, body.text, body.config, context.settings.text_bytes_max)
        row = Append(live, unmarked(body.kind, payload, body.boundary), request=request)
        pending_max = None
        if body.viewer or asked.caller.role == "room":
            row = row._replace(request=VIEWER + request)
            pending_max = max(1, context.store.limits.pending_max // VIEWERS_SHARE)
        outcome = await append(context, row, pending_max)
        context.metrics.pushed(outcome, time.perf_counter() - began, asked.caller.tenant)
        if isinstance(outcome, o.Appended):
            if pending_max is not None and body.identity:
                await note_said(context, live, ViewerItem(body.identity, body.kind, outcome.seq))
            return m.Pushed(live_id, request, seq=outcome.seq)
        if pending_max is not None and isinstance(outcome, o.TooManyPending):
            raise Problem(
                "TOO_MANY_PENDING",
                f"live {live_id} has {outcome.pending} items pending, and viewers' are taken up to {pending_max}; "
                "wait for its Worker to ack some",
                pending=outcome.pending,
            )
        problem = refusal(live_id, outcome)
        if problem is not None:
            raise problem
        return m.Pushed(live_id, request, duplicate=True)

    return [
        Endpoint(
            name="push_text",
            method="POST",
            path="/v1/lives/{live_id}/text",
            handler=push_text,
            summary="Push one item of input",
            path_type=LivePath,
            body=m.PushText,
            headers=[IDEMPOTENCY_KEY],
            replies={200: m.Pushed},
            problems=[
                *("NOT_FOUND", "ENDED", "CLOSING", "TOO_MANY_PENDING", "TOO_LARGE", "STORE_FULL"),
            ],
            tag="input",
        )
    ]


async def note_said(context: InferContext, live: str, item: ViewerItem) -> None:
    """Note who said it, for the live's events. The item is stored: if this fails, its pusher must not try again."""
    try:
        await context.records.lives.note_said(live, item)
    except StoreError as error:
        log.warning("cannot note who sent an item", live=live, seq=item.seq, reason=str(error))


async def append(context: InferContext, row: Append, pending_max: int | None = None) -> o.AppendOutcome:
    """Store one item by its request id, repeat it unchanged while its outcome is unknown, and return the outcome.

    An item with a `pending_max` of its own is sent in a call of its own.
    """
    loop = asyncio.get_running_loop()
    attempts = Attempts(loop.time() + context.settings.deadline_s)
    while True:
        try:
            if pending_max is None:
                return await context.pulls.append(row)
            # Without our name as the controller, the step wakes whoever holds the pull, also when that is this one.
            outcome: o.AppendOutcome
            [outcome] = await context.store.append_soon([row], controller="", pending_max=pending_max)
            return outcome
        except StoreUnavailable as error:
            if (final := attempts.failed(error, loop.time())) is not None:
                raise final from error
            await asyncio.sleep(RETRY_S)
