"""A streaming avatar model as a runtime: its VideoGenerator gets sound and makes pictures, which go to the room.

`VideoGenerator` is the interface that avatar models have in LiveKit's agents, without LiveKit: sound in, pictures with
their sound out, a buffer that can be cleared. Behind it here is `continuous_batching.py`, one model for all lives of
the process. Bring your own: implement the protocol, and return it from `generator_of`.

An item is acked when its last picture was shown. An interrupt clears what is not shown yet. A picture that is not made
in time is replaced by the last one, and counted (`session.late`), so `dhsched calibrate` finds how many lives fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import numpy as np

from dhsched.avatar.clock import SAMPLES_PER_SLOT, SLOT_US
from dhsched.avatar.encode import AudioEncoder, VideoEncoder
from dhsched.avatar.publisher import Publisher
from dhsched.room.packets import Packet
from dhsched.tasks import cancel
from dhsched.worker import Session, run
from examples.continuous_batching import FPS, RATE, SIZE, Engine, Frame, SegmentEnd, Sound, load

FRAME_S = 1 / FPS
SECONDS_PER_CHAR = 0.05
BEHIND_MAX_S = 0.5  # A player that is later than this goes on from now, and does not hurry after the clock.
SILENCE = np.zeros(RATE // FPS, np.int16)


class VideoGenerator(Protocol):
    """A model for one live."""

    async def push_audio(self, sound: Sound | SegmentEnd) -> None:
        """Take sound; wait while enough is buffered."""

    def clear_buffer(self) -> None:
        """Drop what was pushed and not taken yet."""

    def take(self) -> Frame | SegmentEnd | None:
        """Return what comes next, if it is made already."""

    def __aiter__(self) -> AsyncIterator[Frame | SegmentEnd]:
        """Yield pictures with their sound, and the end of each sentence."""

    def close(self) -> None:
        """Free what the live has at the model."""


def generator_of(session: Session) -> VideoGenerator:
    engine: Engine = session.shared
    return engine.open()


async def talks(session: Session) -> None:
    """The runtime."""
    generator = generator_of(session)
    player = Player(session, generator)
    session.on_interrupt = player.interrupt
    try:
        async with asyncio.TaskGroup() as group:  # A model that fails ends the runtime, and the live goes on elsewhere.
            showing = group.create_task(player.show())
            async for item in session.inputs():
                if item.kind == "text":
                    session.extend(60)
                    await player.say(item.text)
                session.state = {"said": (session.state or {}).get("said", 0) + (item.kind == "text")}
            showing.cancel()
    finally:
        session.on_interrupt = None
        generator.close()


def voice(text: str) -> Sound:
    """A stand-in for speech synthesis: a tone for each word."""
    at = np.arange(round(len(text) * SECONDS_PER_CHAR * RATE))
    loud = np.array([0 if char == " " else 9_000 for char in text], np.float64)
    levels = np.repeat(loud, -(-len(at) // max(1, len(text))))[: len(at)]
    return (levels * np.sin(2 * np.pi * 220 * at / RATE)).astype(np.int16)


class Player:
    """Shows one live at its pace: a frame every 40 ms, of what the generator has made, else the last picture again."""

    def __init__(self, session: Session, generator: VideoGenerator) -> None:
        self._session = session
        self._generator = generator
        self._saying = False  # Whether a sentence has begun to be shown: then a missing picture is late.
        self._said = asyncio.Event()
        self._keyframe = True
        self._last = np.full((SIZE * 3 // 2, SIZE), 128, np.uint8)
        self._video, self._audio = VideoEncoder(SIZE, FPS), AudioEncoder()
        self._frames = 0

    async def say(self, text: str) -> None:
        """Return when the last picture of the sentence was shown, or an interrupt has ended it."""
        if self._session.interrupted.is_set():
            return  # The interrupt follows this item; nothing of it would be heard.
        self._said.clear()
        pushing = asyncio.create_task(self._push(voice(text)))
        try:
            await self._said.wait()
        finally:
            await cancel(pushing)

    async def _push(self, sound: Sound) -> None:
        await self._generator.push_audio(sound)
        await self._generator.push_audio(SegmentEnd())

    def interrupt(self) -> None:
        self._saying = False
        self._generator.clear_buffer()
        self._said.set()

    async def show(self) -> None:
        """Publish from the claim on. Without a room the sentences pass at the same pace."""
        session, loop = self._session, asyncio.get_running_loop()
        await session.claimed.wait()
        publisher = Publisher(
            live=session.live,
            epoch=session.generation.epoch,
            where=lambda: session.publish,
            on_keyframe=self._want_keyframe,
        )
        if session.publish is not None:
            publisher.start()
        due = loop.time()
        try:
            while True:
                publisher.put(await asyncio.to_thread(self._encode, self._next()))
                due += FRAME_S
                if loop.time() - due > BEHIND_MAX_S:
                    session.late(loop.time() - due)
                    due = loop.time()
                await asyncio.sleep(max(0.0, due - loop.time()))
        finally:
            await publisher.close()

    def _next(self) -> Frame:
        made = self._generator.take()
        if isinstance(made, SegmentEnd):
            self._saying = False
            self._said.set()
            made = None
        if made is None:
            if self._saying:
                self._session.late(FRAME_S)
            return Frame(self._last, SILENCE)
        self._saying, self._last = True, made.picture
        return made

    def _encode(self, frame: Frame) -> list[Packet]:
        pts_us = round(self._frames * 1_000_000 * FRAME_S)
        keyframe, self._keyframe = self._keyframe, False
        self._frames += 1
        packets: list[Packet | None] = [self._video.encode(frame.picture, pts_us, keyframe=keyframe)]
        for number, slot in enumerate(np.split(frame.sound, len(frame.sound) // SAMPLES_PER_SLOT)):
            packets.append(self._audio.encode(slot, pts_us + number * SLOT_US))
        return [packet for packet in packets if packet is not None]

    def _want_keyframe(self) -> None:
        self._keyframe = True


if __name__ == "__main__":
    run(talks, setup=load, pool="gpu", capacity=8)
