"""Encoded media to one viewer: two tracks that pass packets on as they came, never encoded again.

aiortc sends what a track's `recv` returns, and packs an `av.Packet` as it is. Two details are not in aiortc's public
interface, so the dependency is pinned and `tests/unit/test_room_aiortc.py` guards them: a sender that is asked for a
keyframe only sets a flag for its own encoder (we ask the publisher instead), and host candidates leave out loopback.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import aioice.ice
import av
from aiortc import MediaStreamTrack, RTCConfiguration, RTCIceServer, RTCRtpCodecCapability, RTCRtpSender
from aiortc.mediastreams import MediaStreamError

from dhsched.room.ice import Credentials
from dhsched.room.packets import AUDIO, VIDEO

Encoded: TypeAlias = "av.Packet[Any]"
TIME_BASE = {VIDEO: Fraction(1, 90_000), AUDIO: Fraction(1, 48_000)}
KIND = {VIDEO: "video", AUDIO: "audio"}
QUEUE_MAX = {VIDEO: 45, AUDIO: 60}  # Packets, about a second; a viewer that is further behind skips them all.


def encoded(kind: int, at_us: int, payload: bytes) -> Encoded:
    """Return one packet for all viewers of a live, who only read it."""
    packet: Encoded = av.Packet(payload)
    packet.time_base = TIME_BASE[kind]
    packet.pts = at_us * packet.time_base.denominator // 1_000_000
    return packet


def codecs(kind: int, video: str) -> list[RTCRtpCodecCapability]:
    """Return what is offered and accepted for this kind of media: the codec of publishers, for video with
    retransmission."""
    wanted = (f"video/{video}", "video/rtx") if kind == VIDEO else ("audio/opus",)
    return [each for each in RTCRtpSender.getCapabilities(KIND[kind]).codecs if each.mimeType.lower() in wanted]


class Forward(MediaStreamTrack):
    """One kind of media to one viewer. Packets are dropped until the viewer's connection asks for the first."""

    def __init__(self, kind: int, need_keyframe: Callable[[], None]) -> None:
        self.kind = KIND[kind]
        super().__init__()
        self.overflows = 0
        self.sent = 0
        self._kind = kind
        self._need_keyframe = need_keyframe
        self._queue: deque[Encoded] = deque()
        self._waits = kind == VIDEO  # Whether packets are dropped until a keyframe comes.
        self._wanted = False
        self._some = asyncio.Event()

    def put(self, packet: Encoded, *, keyframe: bool) -> None:
        if not self._wanted or (self._waits and not keyframe):
            return
        self._waits = False
        if len(self._queue) >= QUEUE_MAX[self._kind]:
            # Old pictures do not help a viewer that is so far behind, and must not fill our memory.
            self._queue.clear()
            self.overflows += 1
            if self._kind == VIDEO and not keyframe:
                self._waits = True
                self._need_keyframe()
                return
        self._queue.append(packet)
        self._some.set()

    async def recv(self) -> Encoded:
        if not self._wanted:
            self._wanted = True
            if self._kind == VIDEO:
                self._need_keyframe()
        while not self._queue:
            if self.readyState != "live":
                raise MediaStreamError
            self._some.clear()
            await self._some.wait()
        self.sent += 1
        return self._queue.popleft()

    def stop(self) -> None:
        super().stop()
        self._some.set()


def answer_keyframe_requests(sender: RTCRtpSender, ask: Callable[[], None]) -> None:
    """Call `ask` when the viewer requests a keyframe, because there is no encoder here."""
    sender._send_keyframe = ask  # type: ignore[method-assign]


def configured(servers: Sequence[tuple[str, Credentials | None]]) -> RTCConfiguration:
    """Return a configuration with these ICE servers; aiortc uses the first STUN and the first TURN server. Without any
    there is no STUN: aiortc's own default would be somebody else's server."""
    made = [
        RTCIceServer([url], given.username, given.password) if given is not None else RTCIceServer([url])
        for url, given in servers
    ]
    return RTCConfiguration(iceServers=made)


def use_addresses(addresses: Sequence[str]) -> None:
    """Offer these addresses for media in this process; without any, the ones that aioice finds."""
    if addresses:
        aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: [*addresses]
