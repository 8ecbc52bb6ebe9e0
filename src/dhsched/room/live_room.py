"""One live in this room: its publishers, its viewers, and its timeline.

fence.py and media_clock.py decide; this module passes packets from the publisher on air to every viewer, in the order
of arrival and in the same tick, so audio and video of one moment leave together.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from dhsched.access.viewers import VerifiedViewer
from dhsched.client.models.lives import PublishingOut
from dhsched.room import fence
from dhsched.room.captions import Captions
from dhsched.room.fence import Admitted, Fence, NeverIssued, Superseded, Verdict
from dhsched.room.media_clock import MediaClock
from dhsched.room.packets import CAPTION, VIDEO, Packet
from dhsched.room.tracks import Encoded, Forward, encoded
from dhsched.types import Generation

log = structlog.get_logger(__name__)

SHOWN_MAX = 64  # Older generations are dropped from the timeline.
SAID_MAX = 32  # Older items of viewers are dropped from the state.
KEYFRAME_MIN_S = 0.5  # A request that follows sooner waits: a keyframe is many times as large as another frame.


class Publisher(Protocol):
    """One connection of one generation, as the live sees it."""

    epoch: int
    worker: str
    cause: str

    def want_keyframe(self) -> None:
        """Request a keyframe."""

    def superseded(self, epoch: int) -> None:
        """Disconnect: the live is at `epoch` at least."""

    def replaced(self) -> None:
        """Disconnect: another connection of the same generation has begun."""

    def ended(self) -> None:
        """Disconnect: the live has ended."""

    async def confirm(self) -> None:
        """Ask Dispatch whether the connection may go on, and disconnect if it may not."""


class Viewer(Protocol):
    """One connection of one viewer, as the live sees it."""

    video: Forward
    audio: Forward
    reader: object
    """The stream that the viewer's captions go to; an earlier one ends."""

    async def close(self) -> None:
        """Disconnect."""

    def renew(self, viewer: VerifiedViewer) -> None:
        """Let the connection last until this viewer's token expires."""


class Output(Protocol):
    """Where a live is sent beside its viewers (whip.py)."""

    def put(self, kind: int, packet: Encoded, *, keyframe: bool) -> None:
        """Take a packet that has passed the fence."""

    def end(self) -> None:
        """Disconnect soon: the live has ended."""


class Shown(msgspec.Struct):
    """One row of the timeline: this generation was on air from `began_ms` to `last_ms`. Wall-clock time."""

    epoch: int
    worker: str
    cause: str
    began_ms: int
    last_ms: int
    gap_ms: int
    """Time without a picture, between the last one of the row before and the first one of this row."""


class Said(msgspec.Struct):
    """An item that a viewer sent: item `seq` of the live's input, at a wall-clock time."""

    identity: str
    kind: str
    seq: int
    at_ms: int


class LiveRoom:
    """One live; see the module. `live` is its full name, with the tenant."""

    def __init__(self, live: str, counts: Counts, send_out: Callable[[LiveRoom], None] | None = None) -> None:
        self.live = live
        self.cell = ""  # As Dispatch said last; empty where the deployment has only one.
        self.output: Output | None = None
        self.viewers: dict[str, Viewer] = {}
        self.shown: deque[Shown] = deque(maxlen=SHOWN_MAX)
        self.said: deque[Said] = deque(maxlen=SAID_MAX)
        self.captions = Captions()
        self.idle_since = time.monotonic()
        self.clock = MediaClock()
        self._counts = counts
        self._send_out = send_out
        self._fence = Fence()
        self._publishers: dict[int, Publisher] = {}
        self._began = time.monotonic()
        self._last_picture = 0.0
        self._keyframe_asked = float("-inf")
        self._keyframe_timer: asyncio.TimerHandle | None = None

    @property
    def on_air(self) -> int:
        return self._fence.on_air

    @property
    def in_use(self) -> bool:
        return bool(self.viewers or self._publishers or self.output)

    @property
    def publishers(self) -> list[Publisher]:
        return [*self._publishers.values()]

    # -- publishers

    def admit(self, publishing: PublishingOut) -> Admitted | Superseded | NeverIssued:
        """Return whether a connection of this generation may begin to publish, or go on."""
        asking = Generation(publishing.worker, publishing.epoch)
        current = Generation(publishing.current.worker, publishing.current.epoch)
        self.cell = publishing.cell_name
        self._fence, verdict = fence.admit(self._fence, asking, current, home=publishing.home)
        return verdict

    def must_ask(self, publisher: Publisher, *, silent_s: float) -> bool:
        """Return whether Dispatch must be asked about a publisher before its next packet passes."""
        return fence.must_ask(self._fence, publisher.epoch, silent_s=silent_s)

    def join(self, publisher: Publisher) -> None:
        """Add a connection. An earlier connection of the same generation is disconnected."""
        before = self._publishers.get(publisher.epoch)
        self._publishers[publisher.epoch] = publisher
        self._fence = fence.join(self._fence, publisher.epoch)
        if before is not None:
            before.replaced()
        self._keyframe_asked = float("-inf")

    def leave(self, publisher: Publisher) -> None:
        if self._publishers.get(publisher.epoch) is publisher:
            del self._publishers[publisher.epoch]
        if publisher.epoch not in self._publishers:
            self._fence = fence.leave(self._fence, publisher.epoch)
        self.note_idle()

    async def end(self) -> None:
        """Take an ended live off the air: disconnect its publishers, then its viewers."""
        if self.in_use:
            log.info("live ended", live=self.live, epoch=self._fence.highest, viewers=len(self.viewers))
        self._fence = fence.end(self._fence)
        publishers, self._publishers = self.publishers, {}
        for publisher in publishers:
            publisher.ended()
        if self.output is not None:
            self.output.end()
        await asyncio.gather(*(viewer.close() for viewer in [*self.viewers.values()]))
        self.note_idle()

    def hear(self, publisher: Publisher, packet: Packet) -> bool:
        """Handle one packet. Return False if its publisher has been superseded or replaced. Raise BadValue if it is a
        caption that cannot be read."""
        if self._publishers.get(publisher.epoch) is not publisher:
            return False
        before = self._fence.highest
        self._fence, verdict = fence.hear(self._fence, publisher.epoch, keyframe=packet.keyframe)
        if self._fence.highest > before:
            self._fence_off(self._fence.highest)
        if verdict is Verdict.STALE:
            self._counts.stale += 1
            publisher.superseded(self._fence.highest)
            return False
        if verdict is Verdict.WAIT:
            self._counts.waited += 1
            self.want_keyframe()
            return True
        if packet.kind == CAPTION:
            self.captions.show(publisher.epoch, packet.payload)
            return True
        now = time.monotonic()
        now_us = int((now - self._began) * 1e6)
        if verdict is Verdict.TAKE_OVER:
            self.clock.take_over(packet.pts_us, now_us)
            self._take_over(publisher, now)
        if (at_us := self.clock.at(packet.kind, packet.pts_us, now_us)) is None:
            self._counts.behind += 1
            return True
        if packet.kind == VIDEO:
            self._last_picture = now
            self.shown[-1].last_ms = wall_ms()
        self._forward(packet, at_us)
        return True

    def _forward(self, packet: Packet, at_us: int) -> None:
        if self._send_out is not None and self.output is None:
            self._send_out(self)
        if not self.viewers and self.output is None:
            return
        self._counts.forwarded += 1
        sent = encoded(packet.kind, at_us, packet.payload)
        if self.output is not None:
            self.output.put(packet.kind, sent, keyframe=packet.keyframe)
        for viewer in self.viewers.values():
            (viewer.video if packet.kind == VIDEO else viewer.audio).put(sent, keyframe=packet.keyframe)

    def _take_over(self, publisher: Publisher, now: float) -> None:
        self._counts.take_overs += 1
        gap_ms = round((now - self._last_picture) * 1000) if self._last_picture else 0
        at_ms = wall_ms()
        self.shown.append(Shown(publisher.epoch, publisher.worker, publisher.cause, at_ms, at_ms, gap_ms))
        log.info("on air", live=self.live, epoch=publisher.epoch, worker=publisher.worker, gap_ms=gap_ms)

    def _fence_off(self, highest: int) -> None:
        """Disconnect the publishers of every generation below `highest`, which has published."""
        for epoch in [epoch for epoch in self._publishers if epoch < highest]:
            self._publishers.pop(epoch).superseded(highest)

    # -- keyframes

    def want_keyframe(self) -> None:
        """Request a keyframe from the newest publisher that is admitted, at most once per KEYFRAME_MIN_S for all
        viewers together."""
        if self._keyframe_timer is not None or not self._publishers:
            return
        loop = asyncio.get_running_loop()
        if (wait_s := self._keyframe_asked + KEYFRAME_MIN_S - loop.time()) > 0:
            self._keyframe_timer = loop.call_later(wait_s, self._ask_keyframe)
        else:
            self._ask_keyframe()

    def _ask_keyframe(self) -> None:
        self._keyframe_timer = None
        self._keyframe_asked = asyncio.get_running_loop().time()
        if admitted := self._fence.admitted & self._publishers.keys():
            self._counts.keyframes_asked += 1
            self._publishers[max(admitted)].want_keyframe()

    # -- viewers

    def watch(self, key: str, viewer: Viewer) -> None:
        self.viewers[key] = viewer

    def unwatch(self, key: str) -> Viewer | None:
        viewer = self.viewers.pop(key, None)
        self.note_idle()
        return viewer

    def note_idle(self) -> None:
        if not self.in_use:
            self.idle_since = time.monotonic()


class Counts:
    """Counters of this process, read when the metrics page is requested (app.py)."""

    def __init__(self) -> None:
        self.forwarded = 0
        self.stale = 0
        self.waited = 0
        self.behind = 0
        self.take_overs = 0
        self.keyframes_asked = 0
        self.refused = 0
        self.malformed = 0

    def all(self) -> list[tuple[str, str, Callable[[], int]]]:
        """Return the name, the help text and the reader of each counter."""
        return [
            ("dhsched_room_packets_total", "Packets forwarded to viewers.", lambda: self.forwarded),
            ("dhsched_room_stale_packets_total", "Packets of superseded generations, dropped.", lambda: self.stale),
            ("dhsched_room_waiting_packets_total", "Packets before a first keyframe, dropped.", lambda: self.waited),
            ("dhsched_room_behind_packets_total", "Packets behind the media clock, dropped.", lambda: self.behind),
            ("dhsched_room_take_overs_total", "Times that a publisher went on air.", lambda: self.take_overs),
            ("dhsched_room_keyframes_asked_total", "Keyframes asked of publishers.", lambda: self.keyframes_asked),
            ("dhsched_room_publishers_refused_total", "Publishers that the fence refused.", lambda: self.refused),
            (
                "dhsched_room_publishers_malformed_total",
                "Publishers cut off for what they sent.",
                lambda: self.malformed,
            ),
        ]


def wall_ms() -> int:
    return round(time.time() * 1000)
