"""The agent's voice, sent to the current generation of its avatar.

LiveKit's DataStreamAudioOutput sends to one identity for ever. This output is *aimed*: at the seat with the highest
epoch, and anew at each later one. It keeps the segments (sentences, mostly) that have not been played to their end.
The avatar reports while it plays how far it is; the next generation is sent the rest from there, so a sentence goes on
after the death of a Worker. The conventions are LiveKit's: byte streams of the topic `lk.audio_stream`, the methods
`lk.clear_buffer`, `lk.playback_started` and `lk.playback_finished`. A report of any other identity is refused.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from livekit import rtc
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities

from dhsched.tasks import cancel

log = structlog.get_logger(__name__)

STREAM_TOPIC = "lk.audio_stream"
CLEAR, STARTED, FINISHED = "lk.clear_buffer", "lk.playback_started", "lk.playback_finished"
PLAYED_TOPIC = "dhsched.played"  # Seconds of the current segment that were played, as text.
AHEAD_MAX_S = 120.0  # Audio that waits for an avatar; with more than this, the agent's voice waits.
CLEARED_S = 2.0  # An avatar that does not report the end of what was cleared by then is not waited for.


@dataclass(slots=True)
class Segment:
    """One stretch of speech, until it has been played to its end."""

    frames: list[rtc.AudioFrame] = field(default_factory=list)
    ended: bool = False
    heard_s: float = 0.0  # As the avatar has reported.
    sent_from_s: float = 0.0  # Where the current generation was sent it from.
    more: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def duration_s(self) -> float:
        return float(sum(frame.duration for frame in self.frames))

    def frames_after(self, seconds: float) -> int:
        """Return the number of the frame that this second falls into."""
        at = 0.0
        for n, frame in enumerate(self.frames):
            at += frame.duration
            if at > seconds:
                return n
        return len(self.frames)


class AimedAudioOutput(AudioOutput):
    """The audio output of an agent; `aim` says which generation receives it."""

    def __init__(self, room: rtc.Room, *, sample_rate: int | None, on_speaking: Callable[[bool], None]) -> None:
        super().__init__(
            label="dhsched",
            capabilities=AudioOutputCapabilities(pause=False),
            next_in_chain=None,
            sample_rate=sample_rate,
        )
        self.identity = ""
        self._room = room
        self._on_speaking = on_speaking
        self._segments: deque[Segment] = deque()
        self._open: Segment | None = None  # The segment that takes new frames.
        self._changed = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._clearing: asyncio.Task[None] | None = None
        room.local_participant.register_rpc_method(STARTED, self._started)
        room.local_participant.register_rpc_method(FINISHED, self._finished)
        room.on("data_received", self._on_data)

    async def aim(self, identity: str) -> None:
        """Send to this identity from now on, beginning with the audio that was not heard yet."""
        if identity == self.identity:
            return
        log.info("the audio goes to another generation", identity=identity, before=self.identity)
        self.identity = identity
        await cancel(self._sending)
        for segment in self._segments:
            segment.sent_from_s = segment.heard_s
        self._sending = asyncio.create_task(self._send_all(identity), name=f"audio to {identity}")

    async def aclose(self) -> None:
        self._room.off("data_received", self._on_data)
        await cancel(self._sending, self._clearing)

    # -- what the agent's session calls

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        if self._clearing is not None:
            await asyncio.shield(self._clearing)
        while not self.identity and sum(each.duration_s for each in self._segments) > AHEAD_MAX_S:
            self._changed.clear()
            await self._changed.wait()
        await super().capture_frame(frame)
        if self._open is None:
            self._open = Segment()
            self._segments.append(self._open)
            self._changed.set()
            self._on_speaking(True)
        self._open.frames.append(frame)
        self._open.more.set()

    def flush(self) -> None:
        super().flush()
        if self._open is not None:
            self._open.ended = True
            self._open.more.set()
            self._open = None

    def clear_buffer(self) -> None:
        if self._segments and self._clearing is None:
            super().flush()
            self._open = None
            self._clearing = asyncio.create_task(self._clear(len(self._segments)))

    # -- sending

    async def _send_all(self, identity: str) -> None:
        sent: Segment | None = None
        while True:
            waiting = [*self._segments]
            after = waiting.index(sent) + 1 if sent in waiting else 0
            if after == len(waiting):
                self._changed.clear()
                await self._changed.wait()
                continue
            sent = waiting[after]
            await self._send(sent, identity)

    async def _send(self, segment: Segment, identity: str) -> None:
        n = segment.frames_after(segment.sent_from_s)
        writer: rtc.ByteStreamWriter | None = None
        while True:
            segment.more.clear()
            for frame in segment.frames[n:]:
                if writer is None:
                    writer = await self._room.local_participant.stream_bytes(
                        name=f"AUDIO_{id(segment):x}",
                        topic=STREAM_TOPIC,
                        destination_identities=[identity],
                        attributes={"sample_rate": str(frame.sample_rate), "num_channels": str(frame.num_channels)},
                    )
                await writer.write(bytes(frame.data))
                n += 1
            if segment.ended and n == len(segment.frames):
                break
            if segment not in self._segments:
                break  # It was cleared.
            await segment.more.wait()
        if writer is not None:
            await writer.aclose()
        elif segment in self._segments:
            self._end(segment, segment.duration_s, interrupted=False)  # All of it was heard before the move.

    async def _clear(self, count: int) -> None:
        cleared = [*self._segments][:count]
        try:
            if self.identity:
                call = self._room.local_participant.perform_rpc(
                    destination_identity=self.identity, method=CLEAR, payload=""
                )
                async with asyncio.timeout(CLEARED_S):
                    await call
                    while any(segment in self._segments for segment in cleared):
                        self._changed.clear()
                        await self._changed.wait()
        except (rtc.RpcError, TimeoutError) as error:
            log.info("the avatar did not report the end of what was cleared", error=str(error))
        finally:
            self._clearing = None
            for segment in cleared:
                self._end(segment, segment.heard_s, interrupted=True)

    # -- what the avatar reports

    def _started(self, call: rtc.RpcInvocationData) -> str:
        if call.caller_identity != self.identity:
            return "reject"
        self.on_playback_started(created_at=time.time())
        return "ok"

    def _finished(self, call: rtc.RpcInvocationData) -> str:
        if call.caller_identity != self.identity:
            log.warning("the report of an earlier generation was refused", identity=call.caller_identity)
            return "reject"
        said = json.loads(call.payload)
        if self._segments:
            segment = self._segments[0]
            played_s = segment.sent_from_s + float(said["playback_position"])
            self._end(segment, played_s, interrupted=bool(said["interrupted"]))
        return "ok"

    def _on_data(self, packet: rtc.DataPacket) -> None:
        if packet.topic != PLAYED_TOPIC or packet.participant is None or not self._segments:
            return
        if packet.participant.identity == self.identity:
            segment = self._segments[0]
            segment.heard_s = max(segment.heard_s, segment.sent_from_s + float(packet.data))

    def _end(self, segment: Segment, played_s: float, *, interrupted: bool) -> None:
        if segment not in self._segments:
            return
        self._segments.remove(segment)
        segment.more.set()  # Nothing more of it is sent.
        if segment is self._open:
            super().flush()
            self._open = None
        self._changed.set()
        self.on_playback_finished(playback_position=played_s, interrupted=interrupted)
        if not self._segments:
            self._on_speaking(False)
