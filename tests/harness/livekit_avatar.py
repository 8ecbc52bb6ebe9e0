"""A Worker of avatars for tests: a face whose brightness says its epoch, and which repeats the voice that it is sent.

python -m tests.harness.livekit_avatar NAME DISPATCH LOCKS
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from livekit import rtc
from livekit.agents.utils.audio import AudioByteStream
from livekit.agents.voice.avatar import AudioSegmentEnd, AvatarOptions, VideoGenerator

from dhsched.livekit import run_avatar
from dhsched.worker import Session

SIZE, FPS, RATE = 64, 15, 8_000
OPTIONS = AvatarOptions(SIZE, SIZE, FPS, RATE, 1)


def brightness(epoch: int) -> int:
    return 40 + 50 * (epoch % 4)


class Face(VideoGenerator):  # type: ignore[misc, unused-ignore]
    def __init__(self, shade: int) -> None:
        picture = bytes([shade, shade, shade, 255]) * (SIZE * SIZE)
        self._picture = rtc.VideoFrame(SIZE, SIZE, rtc.VideoBufferType.RGBA, picture)
        self._cut = AudioByteStream(RATE, 1, samples_per_channel=RATE // FPS)
        self._queue: asyncio.Queue[rtc.AudioFrame | AudioSegmentEnd] = asyncio.Queue()

    async def push_audio(self, frame: rtc.AudioFrame | AudioSegmentEnd) -> None:
        if isinstance(frame, AudioSegmentEnd):
            pieces: list[rtc.AudioFrame | AudioSegmentEnd] = [*self._cut.flush(), frame]
        else:
            pieces = [*self._cut.push(frame.data)]
        for piece in pieces:
            self._queue.put_nowait(piece)

    def clear_buffer(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()

    async def __aiter__(self) -> AsyncIterator[rtc.VideoFrame | rtc.AudioFrame | AudioSegmentEnd]:
        while True:
            try:
                async with asyncio.timeout(1 / FPS):
                    piece = await self._queue.get()
            except TimeoutError:
                yield self._picture
                continue
            if isinstance(piece, rtc.AudioFrame):
                yield self._picture
            yield piece


def face(session: Session) -> Face:
    return Face(brightness(session.generation.epoch))


if __name__ == "__main__":
    name, dispatch, locks = sys.argv[1:4]
    run_avatar(face, options=OPTIONS, name=name, dispatch=dispatch, lock_folder=Path(locks), pool="gpu", capacity=2)
