"""The picture of one honest live, and the honest viewer who watches it.

The picture is green, with the last 16 bits of the epoch as black and white stripes, so that each frame says whose it
is. What the hostile Worker publishes is red.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import aiohttp
import av
import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from dhsched.access.viewer_tokens import sign
from dhsched.access.viewers import GRANTS, TTL_MAX_S, Viewer
from dhsched.room.packets import VIDEO, Packet, write_packet
from dhsched.worker import Publish
from tests.chaos.runtime import SHOWN

if TYPE_CHECKING:
    from tests.chaos.deployment import Deployment

BITS, STRIPE, HEIGHT = 16, 8, 64
WIDTH = BITS * STRIPE
GREEN, RED = (20, 160, 40), (230, 10, 10)
FRAME_S = 0.2
AGAIN_S = 0.3


def encoded(colour: tuple[int, int, int], number: int) -> bytes:
    """One VP8 keyframe: this colour above, the number's bits below."""
    picture = np.full((HEIGHT, WIDTH, 3), colour, np.uint8)
    for bit in range(BITS):
        picture[HEIGHT // 2 :, bit * STRIPE : (bit + 1) * STRIPE] = 255 * (number >> bit & 1)
    codec = av.CodecContext.create("libvpx", "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = WIDTH, HEIGHT, "yuv420p", Fraction(1, 90_000)
    codec.bit_rate, codec.thread_count, codec.options = 2_000_000, 1, {"lag-in-frames": "0", "deadline": "realtime"}
    frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")
    frame.pts, frame.time_base = 0, Fraction(1, 90_000)
    return b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])


def decoded(picture: Any) -> tuple[bool, int]:
    """Whether a frame is the hostile Worker's, and the number that it shows."""
    red, green, _ = picture[: HEIGHT // 3].reshape(-1, 3).mean(axis=0)
    stripes = [picture[3 * HEIGHT // 4, bit * STRIPE + 2 : (bit + 1) * STRIPE - 2].mean() for bit in range(BITS)]
    return bool(red > green), sum((stripe > 128) << bit for bit, stripe in enumerate(stripes))


def begin(live: str, epoch: int) -> dict[str, Any]:
    video, audio = {"codec": "vp8", "clock": 90_000}, {"codec": "opus", "clock": 48_000}
    return {"live": live, "epoch": epoch, "video": video, "audio": audio}


async def publish(live: str, epoch: int, to: Publish) -> None:
    """Publish the picture of a generation until cancelled, on one connection after the other."""
    payload, since = encoded(GREEN, epoch), time.monotonic()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {to.token}"}) as http:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.ws_connect(f"{to.url}/v1/publish") as socket:
                    await socket.send_str(json.dumps(begin(live, epoch)))
                    while not socket.closed:
                        pts_us = int((time.monotonic() - since) * 1e6)
                        await socket.send_bytes(write_packet(Packet(VIDEO, True, pts_us, payload)))
                        with contextlib.suppress(TimeoutError):
                            await socket.receive(FRAME_S)
            await asyncio.sleep(AGAIN_S)


class Audience:
    """The honest viewer of the live that has a picture. It comes back when it loses its connection."""

    def __init__(
        self, deployment: Deployment, http: aiohttp.ClientSession, tell: Callable[[str], None] = print
    ) -> None:
        self._tell = tell
        self.frames = 0
        self.red = 0
        self.numbers: list[int] = []
        """The numbers that were shown, each once in a row."""
        self.session = ""
        """The key of its session in the room: a secret that the hostile viewer is told all the same."""
        self.connections = 0
        self._deployment = deployment
        self._http = http

    def token(self, live: str, identity: str = "") -> str:
        """A viewer token with every grant, as Dispatch mints it for an app."""
        ring = self._deployment.access.ring
        kid = ring.newest("viewer")
        viewer = Viewer(live, frozenset(GRANTS), identity)
        return sign(viewer, kid=kid, secret=ring.secrets("viewer")[kid], ttl_s=TTL_MAX_S)

    async def watch(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._connection()
            await asyncio.sleep(AGAIN_S)

    async def _connection(self) -> None:
        pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        tasks: list[asyncio.Task[None]] = []
        over = asyncio.Event()
        try:
            pc.addTransceiver("video", direction="recvonly")
            pc.on("track", lambda track: tasks.append(asyncio.create_task(self._look(track))))
            pc.on("connectionstatechange", lambda: over.set() if pc.connectionState in ("failed", "closed") else None)
            await pc.setLocalDescription(await pc.createOffer())
            url = f"{self._deployment.room}/v1/lives/{SHOWN.partition('/')[2]}/whep"
            headers = {"Authorization": f"Bearer {self.token(SHOWN, 'honest')}", "Content-Type": "application/sdp"}
            async with self._http.post(url, data=pc.localDescription.sdp, headers=headers) as response:
                if response.status != 201:
                    return
                self.session = response.headers["Location"].rpartition("/")[2]
                await pc.setRemoteDescription(RTCSessionDescription(await response.text(), "answer"))
            self.connections += 1
            await over.wait()
        finally:
            for task in tasks:
                task.cancel()
            await pc.close()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, track: MediaStreamTrack) -> None:
        while True:
            frame: Any = await track.recv()
            red, number = decoded(frame.to_ndarray(format="rgb24"))
            self.frames += 1
            if red and not self.red:
                self._tell("the honest viewer sees the picture of the hostile Worker")
            self.red += red
            if self.numbers[-1:] != [number]:
                self.numbers.append(number)

    def judge(self, epochs: set[int], *, in_order: bool) -> Iterator[str]:
        """What is wrong with what was seen. `epochs` are all that the live ever had."""
        if not self.frames:
            yield "the honest viewer saw no picture"
        if self.red:
            yield f"the honest viewer saw {self.red} frames of the hostile Worker"
        short = {epoch % 2**BITS: epoch for epoch in epochs}
        if strange := [number for number in self.numbers if number not in short]:
            yield f"the honest viewer saw pictures of epochs that {SHOWN} never had: {strange[:5]} of {sorted(epochs)}"
        elif in_order and any(short[one] > short[after] for one, after in pairwise(self.numbers)):
            yield f"the honest viewer saw an earlier generation after a later one: {self.numbers}"


@asynccontextmanager
async def watching(
    deployment: Deployment, http: aiohttp.ClientSession, tell: Callable[[str], None]
) -> AsyncIterator[Audience]:
    audience = Audience(deployment, http, tell)
    task = asyncio.create_task(audience.watch())
    try:
        yield audience
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
