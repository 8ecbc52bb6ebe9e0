"""The caption of one live: the words that its viewers have just heard, sent to them as they are heard.

A publisher sends captions on its own connection, between its packets of sound (packets.py), so the fence of media
(fence.py) is theirs too, and no viewer costs a request to anybody else. Only the last caption is kept. Each viewer's
stream sends the newest caption and leaves out what its reader was too slow for: a caption has all words of its
sentence so far, so nothing is missed by that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from dhsched.room.packets import read_caption
from dhsched.tasks import is_set_within

FRESH_S = 4.0  # A viewer who comes later than this after a caption is not sent the caption.
NEXT_MIN_S = 0.05  # Between two captions to one viewer, however many the publisher sends.
ROUND_S = 1.0  # A stream notices within this that its viewer has left, or that the room stops.


class CaptionOut(msgspec.Struct, frozen=True):
    """One caption as viewers get it: the words of item `seq` that viewers have heard so far from generation `epoch`.

    `cut` says that an interrupt stopped the voice here.
    """

    epoch: int
    seq: int
    text: str
    cut: bool


class Captions:
    """The last caption of one live."""

    def __init__(self) -> None:
        self._last: CaptionOut | None = None
        self._at = float("-inf")
        self._changed = asyncio.Event()

    def show(self, epoch: int, payload: bytes) -> None:
        """Show the caption of a packet that has passed the fence. Raise BadValue if the packet cannot be read."""
        given = read_caption(payload)
        self._last, self._at = CaptionOut(epoch, given.seq, given.text, given.cut), time.monotonic()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def fresh(self) -> CaptionOut | None:
        """Return the last caption, or None if it is older than FRESH_S."""
        return self._last if time.monotonic() - self._at <= FRESH_S else None

    async def follow(self, is_open: Callable[[], bool]) -> AsyncIterator[list[bytes]]:
        """Yield the event of each caption for one viewer, the present one first, as long as `is_open`.

        Without a new caption nothing is in the list, so that the stream can be kept alive.
        """
        sent: CaptionOut | None = None
        while is_open():
            changed, now = self._changed, self.fresh
            yield [] if now is None or now is sent else [encoded(now)]
            sent = now
            if await is_set_within(ROUND_S, changed):
                await asyncio.sleep(NEXT_MIN_S)


def encoded(caption: CaptionOut) -> bytes:
    """Return the caption as a server-sent event."""
    return b"event: caption\ndata: " + msgspec.json.encode(caption) + b"\n\n"
