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
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from dhsched.client.models import input as m
from dhsched.errors import StoreError, StoreUnavailable
from dhsched.infer.append_rules import RETRY_S, Attempts, new_request, payload_of, refusal, store_full
from dhsched.infer.context import InferContext, Inputs
from dhsched.input_routes import IDEMPOTENCY_KEY, PUSH_TEXT
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import unmarked, with_trace
from dhsched.store.records.lives import ViewerItem
from dhsched.store.steps.redis import Append
from dhsched.types import live_key
from dhsched.web import Endpoint, Problem, Request
from dhsched.web.traceparent import GIVEN

log = structlog.get_logger(__name__)

VIEWERS_SHARE = 4  # Of `pending_max`, one part in so many is open to viewers.
VIEWER = "viewer:"  # Before a viewer's request id. No id has a colon, so no app's id is among them.


def endpoints(inputs: Inputs) -> Sequence[Endpoint]:
    async def push_text(asked: Request) -> m.Pushed:
        """Store one item; return its number in the live's input, or that it was stored before."""
        began = time.perf_counter()
        body: m.PushText = asked.body
        live_id, tenant = asked.path.live_id, asked.caller.tenant
        live = live_key(tenant, live_id)
        context = inputs.of(live)
        settings, quotas, pulls = context.settings, context.service.quotas, context.pulls
        if (problem := store_full(context.memory_share, settings.memory_max)) is not None:
            raise problem
        if tenant in quotas.over_pending and body.kind != "interrupt":
            raise quotas.too_much_pending(tenant)
        given = body.request_id if isinstance(body.request_id, str) else asked.request.headers.get(IDEMPOTENCY_KEY.name)
        request = given or new_request()
        payload = payload_of(body.kind, body.text, body.config, settings.text_bytes_max)
        item = unmarked(body.kind, payload, body.boundary)
        traced = None if pulls.traces is None else pulls.traces.begin(GIVEN.get())
        if traced is not None and body.kind != "config":
            item = with_trace(item, traced.trace)
        row = Append(live, item, request=request)
        of_viewer = body.viewer or asked.caller.role == "room"
        try:
            outcome = await (append_of_viewer(context, row) if of_viewer else pulls.append(row))
        except StoreUnavailable as error:
            append = partial(append_of_viewer, context, row) if of_viewer else partial(pulls.append, row)
            outcome = await append_again(append, error, left_s=settings.deadline_s - (time.perf_counter() - began))
        context.metrics.pushed(outcome, time.perf_counter() - began, tenant)
        if traced is not None and pulls.traces is not None:
            pulls.traces.appended(traced, live, outcome)
        if isinstance(outcome, o.Appended):
            if of_viewer and body.identity:
                await note_said(context, live, ViewerItem(body.identity, body.kind, outcome.seq))
            return m.Pushed(live_id, request, seq=outcome.seq, dropped=outcome.dropped)
        problem = refusal_of_viewer(context, live_id, outcome) if of_viewer else refusal(live_id, outcome)
        if problem is not None:
            raise problem
        return m.Pushed(live_id, request, duplicate=True)

    return [PUSH_TEXT.served_by(push_text)]


async def append_again(
    append: Callable[[], Awaitable[o.AppendOutcome]], error: StoreUnavailable, *, left_s: float
) -> o.AppendOutcome:
    """Repeat an append that failed with `error`, unchanged, while its outcome is unknown; return the outcome.

    After `left_s` the last error is raised. The item has a request id, by which it is stored once.
    """
    loop = asyncio.get_running_loop()
    attempts = Attempts(loop.time() + left_s)
    while True:
        if (final := attempts.failed(error, loop.time())) is not None:
            raise final from error
        await asyncio.sleep(RETRY_S)
        try:
            return await append()
        except StoreUnavailable as again:
            error = again


# -- items of viewers


async def append_of_viewer(context: InferContext, row: Append) -> o.AppendOutcome:
    """Store one item of a viewer, in a call of its own: it may fill only a part of the queue."""
    row = row._replace(request=VIEWER + row.request)
    # Without our name as the controller, the step wakes whoever holds the pull, also when that is this one.
    outcome: o.AppendOutcome
    [outcome] = await context.store.append_soon([row], controller="", pending_max=viewers_max(context))
    return outcome


def viewers_max(context: InferContext) -> int:
    """Return how many items a live's queue may have for one more of a viewer to be taken."""
    return max(1, context.store.limits.pending_max // VIEWERS_SHARE)


def refusal_of_viewer(context: InferContext, live_id: str, outcome: o.AppendOutcome) -> Problem | None:
    """Return the problem for a viewer's item that was refused; None when the item is stored."""
    if not isinstance(outcome, o.TooManyPending):
        return refusal(live_id, outcome)
    return Problem(
        "TOO_MANY_PENDING",
        f"live {live_id} has {outcome.pending} items pending, and viewers' are taken up to {viewers_max(context)}; "
        "wait for its Worker to ack some",
        pending=outcome.pending,
    )


async def note_said(context: InferContext, live: str, item: ViewerItem) -> None:
    """Note who said it, for the live's events. The item is stored: if this fails, its pusher must not try again."""
    try:
        await context.records.lives.note_said(live, item)
    except StoreError as error:
        log.warning("cannot note who sent an item", live=live, seq=item.seq, reason=str(error))
