"""The judge of the room's output: whose pictures pass, by generation, and until when.

Where a packet leaves the fence of a room (`LiveRoom._forward`), it is judged: within one home of the store no picture
of a lower generation follows one of a higher generation, also over a restart of the room; and no picture follows the
end of its live by more than END_S. Viewers are left out: they are WebRTC connections, which need UDP.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dhsched.ownership.state import Live
from tests.virtual.loop import VirtualLoop

END_S = 60.0  # A room that is cut off from Dispatch goes on showing what comes; faults are shorter than this.
PICTURE_S = 0.9  # Between two pictures. After a second of silence a room would ask Dispatch about each of them.
KEYFRAME = struct.pack("<I", 0)[:3] + b"\x9d\x01\x2a" + bytes(10)
"""What a room takes for a keyframe of VP8."""


class Pictures:
    """See the module. `read` returns the store's record of a live, `note` takes lines of the trace."""

    def __init__(self, loop: VirtualLoop, read: Callable[[str], Live | None], wrong: Callable[[str], None]) -> None:
        self.shown = 0
        self._loop, self._read, self._wrong = loop, read, wrong
        self._highest: dict[tuple[str, str], int] = {}
        self._ended: dict[str, float] = {}

    def look(self) -> None:
        """Note which of the lives that were shown have ended. This is called every few seconds."""
        for live in {live: None for live, _ in self._highest}:
            record = self._read(live)
            if record is not None and record.state != "ended":
                self._ended.pop(live, None)
            else:
                self._ended.setdefault(live, self._loop.now)

    def passes(self, live: str, home: str, epoch: int) -> None:
        """A packet of this generation leaves the fence of a room."""
        self.shown += 1
        highest = self._highest.get((live, home), 0)
        if epoch < highest:
            self._wrong(f"room: a picture of {live}@{epoch} after one of @{highest}")
        self._highest[live, home] = max(highest, epoch)
        ended_at = self._ended.get(live)
        if ended_at is not None and self._loop.now - ended_at > END_S:
            self._wrong(f"room: a picture of {live}@{epoch} {self._loop.now - ended_at:.0f} s after the live has ended")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Judge every packet that a room lets pass."""
        from dhsched.room.live_room import LiveRoom
        from dhsched.room.packets import Packet

        forward, passes = LiveRoom._forward, self.passes

        def judged(self: LiveRoom, packet: Packet, at_us: int) -> None:
            passes(self.live, self._fence.home, self._fence.on_air)
            forward(self, packet, at_us)

        LiveRoom._forward = judged  # type: ignore[method-assign]
        try:
            yield
        finally:
            LiveRoom._forward = forward  # type: ignore[method-assign]


async def publish(session: Any) -> None:
    """Publish pictures of a session until cancelled: the product's own publisher with frames that show nothing."""
    from dhsched.avatar.publisher import Publisher
    from dhsched.room.packets import VIDEO, Packet

    publisher = Publisher(
        live=session.live,
        epoch=session.generation.epoch,
        where=lambda: session.publish,
        on_keyframe=lambda: None,
    )
    publisher.start()
    try:
        pts_us = 0
        while True:
            publisher.put([Packet(VIDEO, True, pts_us, KEYFRAME)])
            await asyncio.sleep(PICTURE_S)
            pts_us += int(PICTURE_S * 1e6)
    finally:
        await publisher.close()
