"""`GET /v1/lives/{live_id}/state`: the state that the runtime of a live has saved last, for people.

A state is a JSON value or bytes (worker/values.py has how it is stored). A JSON value is returned as it is; of bytes
the first HEX_BYTES_MAX, in hexadecimal digits.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dhsched.client.models import lives as m
from dhsched.client.models.base import LivePath
from dhsched.dispatch.api.lives import find_live
from dhsched.dispatch.api.part import Part
from dhsched.types import STATE_IS_BYTES, STATE_IS_JSON
from dhsched.web import Endpoint, Request

HEX_BYTES_MAX = 4_096  # Further bytes of a state that is not JSON are left out.


class SavedStates(Part):
    """The endpoint of saved states, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="get_state",
                method="GET",
                path="/v1/lives/{live_id}/state",
                handler=self.get,
                summary="The state that the live's runtime saved last.",
                tag="lives",
                path_type=LivePath,
                replies={200: m.SavedState},
                problems=["NOT_FOUND"],
            ),
        ]

    async def get(self, asked: Request) -> m.SavedState:
        live_id = asked.path.live_id
        live = await find_live(self.context, asked, live_id)
        return saved_state(live_id, live.saved_seq, live.saved)


def saved_state(live_id: str, seq: int, raw: bytes) -> m.SavedState:
    """Return a stored state as it is shown."""
    if raw.startswith(STATE_IS_JSON):
        stored = raw.removeprefix(STATE_IS_JSON)
        try:
            msgspec.json.decode(stored)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # Whatever a Worker has sent is stored; this is shown as the bytes that it is.
        else:
            value: Any = msgspec.Raw(stored)
            return m.SavedState(live_id, seq, len(stored), value, None)
    stored = raw.removeprefix(STATE_IS_BYTES)
    shown = stored[:HEX_BYTES_MAX].hex() if stored else None
    return m.SavedState(live_id, seq, len(stored), None, shown)
