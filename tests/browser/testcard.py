"""A runtime that publishes a test card and a tone: what the room is tested with, without a face and a voice.

The picture is one colour per epoch with a moving bar, so that a screenshot shows who is on air. There is a tone for
50 ms per character of each item, and silence otherwise; an item is acked when its tone is over.

    dhsched run worker --runtime tests.browser.testcard:show ...
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from dataclasses import dataclass, field
from fractions import Fraction

import aiohttp
import av
import numpy as np

from dhsched.room.packets import AUDIO, VIDEO, Packet, write_packet
from dhsched.worker import Item, Publish, Session

SIZE, FPS, RATE = 160, 15, 48_000
SLOT = RATE // 50  # 20 ms of samples.
TONE_HZ = 440
COLOURS = ((200, 60, 60), (60, 170, 80), (70, 90, 220), (220, 170, 40))


def colour(epoch: int) -> tuple[int, int, int]:
    return COLOURS[epoch % len(COLOURS)]


class Card:
    """Pictures and sound, 20 ms at a time."""

    def __init__(self, epoch: int) -> None:
        self.slot = 0
        self.tone_slots = 0
        self.keyframe = True
        self._colour = colour(epoch)
        self._picture = 0
        video = av.CodecContext.create("libvpx", "w")
        video.width = video.height = SIZE
        video.pix_fmt, video.time_base, video.bit_rate = "yuv420p", Fraction(1, 90_000), 200_000
        video.gop_size, video.thread_count = FPS * 20, 1
        video.options = {"cpu-used": "-12", "deadline": "realtime", "lag-in-frames": "0", "error-resilient": "1"}
        audio = av.CodecContext.create("libopus", "w")
        audio.sample_rate, audio.layout, audio.format, audio.bit_rate = RATE, "mono", "s16", 32_000
        audio.options = {"frame_duration": "20"}
        self._video, self._audio = video, audio

    def step(self) -> list[Packet]:
        """The packets of the next slot."""
        pts_us = self.slot * 20_000
        packets = [Packet(AUDIO, False, pts_us, data) for data in self._sound()]
        if pts_us >= self._picture * 1_000_000 // FPS:
            self._picture += 1
            packets += [Packet(VIDEO, key, pts_us, data) for key, data in self._draw(pts_us)]
        self.slot += 1
        return packets

    def _sound(self) -> list[bytes]:
        at = np.arange(self.slot * SLOT, (self.slot + 1) * SLOT)
        level = 9_000 if self.tone_slots > 0 else 0
        self.tone_slots = max(0, self.tone_slots - 1)
        frame = av.AudioFrame.from_ndarray(
            (level * np.sin(2 * math.pi * TONE_HZ * at / RATE)).astype(np.int16).reshape(1, -1), "s16", "mono"
        )
        frame.sample_rate, frame.pts, frame.time_base = RATE, self.slot * SLOT, Fraction(1, RATE)
        return [bytes(packet) for packet in self._audio.encode(frame)]

    def _draw(self, pts_us: int) -> list[tuple[bool, bytes]]:
        picture = np.full((SIZE, SIZE, 3), self._colour, np.uint8)
        left = self._picture * 4 % (SIZE - 12)
        picture[SIZE // 2 :, left : left + 12] = 255
        frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = pts_us * 9 // 100, Fraction(1, 90_000)
        if self.keyframe:
            frame.pict_type = av.video.frame.PictureType.I
            self.keyframe = False
        return [(packet.is_keyframe, bytes(packet)) for packet in self._video.encode(frame)]


@dataclass
class Show:
    """One generation on its way to the room. It comes back when the room was lost, and stops when it is stale."""

    live: str
    epoch: int
    card: Card
    stale: asyncio.Event = field(default_factory=asyncio.Event)

    async def publish(self, publish: Publish) -> None:
        async with aiohttp.ClientSession() as http:
            while not self.stale.is_set():
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    await self._connection(http, publish)
                await asyncio.sleep(0.1)

    async def _connection(self, http: aiohttp.ClientSession, publish: Publish) -> None:
        headers = {"Authorization": f"Bearer {publish.token}"}
        async with http.ws_connect(f"{publish.url}/v1/publish", headers=headers) as socket:
            await socket.send_str(begin(self.live, self.epoch))
            listening = asyncio.create_task(self._listen(socket))
            self.card.keyframe = True
            try:
                await self._send(socket)
            finally:
                listening.cancel()

    async def _send(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not socket.closed:
            for packet in self.card.step():
                await socket.send_bytes(write_packet(packet))
            due += 0.02
            if loop.time() - due > 0.2:
                due = loop.time()  # Late: go on from here rather than in a hurry.
            await asyncio.sleep(max(0, due - loop.time()))

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            said = json.loads(message.data)
            if "stale" in said:
                self.stale.set()
            self.card.keyframe = self.card.keyframe or "keyframe" in said


def begin(live: str, epoch: int) -> str:
    video, audio = {"codec": "vp8", "clock": 90_000}, {"codec": "opus", "clock": 48_000}
    return json.dumps({"live": live, "epoch": epoch, "video": video, "audio": audio})


async def show(session: Session) -> None:
    """The runtime."""
    card = Card(session.generation.epoch)

    async def publish() -> None:
        await session.claimed.wait()
        if session.publish is not None:
            await Show(session.live, session.generation.epoch, card).publish(session.publish)

    publishing = asyncio.create_task(publish())
    try:
        async for item in session.inputs():
            await sound(session, card, item)
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)


async def sound(session: Session, card: Card, item: Item) -> None:
    card.tone_slots = 0 if item.kind == "interrupt" else max(1, len(item.text) * 50 // 20)
    for _ in range(card.tone_slots + 50):
        if not card.tone_slots or session.interrupted.is_set() or session.stopping.is_set():
            break
        await asyncio.sleep(0.02)
    card.tone_slots = 0
