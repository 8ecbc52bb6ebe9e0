"""m.PushText over HTTP: `POST /v1/lives/{live_id}/text`, one item per request. Accepted means stored.

A request has an id, from its `request_id` or its Idempotency-Key: the same id again is the same item, however often a
client repeats it. Without one we make one, which makes our own retries safe but not the client's.

What a room passes on from its viewers, whom nobody knows, is kept apart: its ids are in a namespace of their own, and
it is taken only while the live's queue is filled to less than VIEWERS_SHARE, so the app always finds space.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from dhsched.client.models import input as m
from dhsched.client.models.base import Strict
from dhsched.infer.append_rules import new_request, payload_of, refusal
from dhsched.infer.context import InferContext
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import unmarked
from dhsched.store.steps.redis import Append
from dhsched.types import Id, live_key
from dhsched.web import Asked, Endpoint, HeaderParameter, Problem

VIEWERS_SHARE = 4  # Of `pending_max`, one part in so many is open to viewers.
VIEWER = "viewer:"  # Before a viewer's request id. No id has a colon, so no app's id is among them.
IDEMPOTENCY_KEY = HeaderParameter("Idempotency-Key", Id, "The request's id, where the body has none.")


class LivePath(Strict):
    live_id: Id


def endpoints(context: InferContext) -> Sequence[Endpoint]:
    async def push_text(asked: Asked) -> m.Pushed:
        """Store one item."""
        began = time.perf_counter()
        body: m.PushText = asked.body
        live_id = asked.path.live_id
        live = live_key(asked.caller.tenant, live_id)
        if (problem := context.store_full()) is not None:
            raise problem
        payload = payload_of(body.kind, body.text, body.config, context.settings.text_bytes_max)
        given = body.request_id if isinstance(body.request_id, str) else asked.header(IDEMPOTENCY_KEY.name)
        request = given or new_request()
        item = unmarked(body.kind, payload, body.boundary)
        if body.viewer or asked.caller.role == "room":
            row = Append(live, item, request=VIEWER + request)
            pending_max = max(1, context.store.limits.pending_max // VIEWERS_SHARE)
            outcome = await context.append_to_its_end(row, pending_max)
            context.metrics.pushed(outcome, time.perf_counter() - began)
            if isinstance(outcome, o.TooManyPending):
                raise Problem(
                    "TOO_MANY_PENDING",
                    f"live {live_id} has {outcome.pending} items pending, and viewers' are taken up to {pending_max}; "
                    "wait for its Worker to ack some",
                    pending=outcome.pending,
                )
        else:
            outcome = await context.append_to_its_end(Append(live, item, request=request))
            context.metrics.pushed(outcome, time.perf_counter() - began)
        problem = refusal(live_id, outcome)
        if problem is not None:
            raise problem
        if isinstance(outcome, o.Appended):
            return m.Pushed(live_id, request, seq=outcome.seq)
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
