"""The routes of the input path, described once: Infer-Controllers serve them, and Dispatch passes them on.

Both roles take paths, names and documents from here, so that `/openapi.json` of either says the same of input.
docs/reference/input.md has the messages of the WebSockets and the events.
"""

from __future__ import annotations

import msgspec

from dhsched.client.models import input as m
from dhsched.client.models.base import UNSET, LivePath, Optional
from dhsched.types import Id
from dhsched.web import HeaderParameter, Operation

IDEMPOTENCY_KEY = HeaderParameter("Idempotency-Key", Id, "The request's id, where the body has none.")
UNPASSED = "NOT_READY"  # The answer of a Dispatch replica that finds no Infer-Controller.
LAST_EVENT_ID = HeaderParameter("Last-Event-ID", str, "The id of the last message that was received.")


class StreamQuery(msgspec.Struct):
    """The query of a stream. `producer` is the name under which the client numbers its items."""

    producer: Id | Optional = UNSET


PUSH_TEXT = Operation(
    name="push_text",
    method="POST",
    path="/v1/lives/{live_id}/text",
    summary="Push one item of input: text, an interrupt or a configuration.",
    path_type=LivePath,
    body=m.PushText,
    headers=[IDEMPOTENCY_KEY],
    replies={200: m.Pushed},
    problems=["NOT_FOUND", "ENDED", "CLOSING", "TOO_MANY_PENDING", "TOO_LARGE", "STORE_FULL", UNPASSED],
    tag="input",
)
PUSH_STREAM = Operation(
    name="push_stream",
    method="GET",
    path="/v1/lives/{live_id}/stream",
    summary="Push many items of one live, over a WebSocket.",
    path_type=LivePath,
    query=StreamQuery,
    replies={},
    streams="WebSocket",
    problems=[UNPASSED],
    tag="input",
)
PUSH_STREAMS = Operation(
    name="push_streams",
    method="GET",
    path="/v1/stream",
    summary="Push many items of many lives, over a WebSocket.",
    query=StreamQuery,
    replies={},
    streams="WebSocket",
    problems=[UNPASSED],
    tag="input",
)
WATCH_LIVE = Operation(
    name="watch_live",
    method="GET",
    path="/v1/lives/{live_id}/events",
    summary="What happens to a live, and the messages of its runtime, as server-sent events.",
    path_type=LivePath,
    headers=[LAST_EVENT_ID],
    replies={},
    streams="server-sent events",
    problems=["NOT_FOUND", UNPASSED],
    tag="input",
)
RAW = (PUSH_STREAM, PUSH_STREAMS, WATCH_LIVE)
"""The operations that no role serves as endpoints, because their connections stay."""
INPUT = (PUSH_TEXT, *RAW)
