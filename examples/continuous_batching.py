"""Continuous batching across lives: a streaming model makes the next chunk of every live that speaks, step by step.

`batching.py` gathers whole requests. A model that streams (sound in, pictures out) is better called in steps: each step
makes one chunk for each live that has sound waiting. A live joins at the next step and leaves after its last chunk, so
nobody waits for the end of somebody else's sentence. The live that would run dry first goes first.

`FakeModel` has the timing of a real one: a step costs a fixed time, and a little more for each live in it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

RATE, FPS, SIZE = 48_000, 25, 64
SAMPLES_PER_FRAME = RATE // FPS
CHUNK_FRAMES = 4  # 160 ms: what the model makes in one step for one live.
BATCH_MAX = 8  # Lives in one step; the others are in the next one.
CHUNKS_AHEAD_MAX = 12  # Chunks that a live may have made, or waiting: two seconds. Then `push_audio` waits.
STEP_S, STEP_PER_LIVE_S = 0.030, 0.006  # Eight lives: 78 ms for 160 ms of each, half of what the GPU can do.

Sound = NDArray[np.int16]
Picture = NDArray[np.uint8]


class SegmentEnd:
    """The end of a sentence, in both directions."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A picture and the sound that belongs to it, 40 ms of both."""

    picture: Picture
    sound: Sound


class Model(Protocol):
    """A model that keeps a state for each live, and makes one chunk for several lives at once. Called in a thread."""

    def step(self, states: list[dict[str, float]], sounds: list[Sound]) -> list[list[Picture]]:
        """Return CHUNK_FRAMES pictures for each sound of as many frames. The states may be changed in place."""


class FakeModel:
    """A mouth that opens with the loudness. `batches` counts the lives of each step."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def step(self, states: list[dict[str, float]], sounds: list[Sound]) -> list[list[Picture]]:
        self.batches.append(len(sounds))
        time.sleep(STEP_S + STEP_PER_LIVE_S * len(sounds))
        return [self._chunk(state, sound) for state, sound in zip(states, sounds, strict=True)]

    def _chunk(self, state: dict[str, float], sound: Sound) -> list[Picture]:
        pictures = []
        for part in np.split(sound, CHUNK_FRAMES):
            loudness = float(np.abs(part.astype(np.int32)).mean()) / 10_000
            state["open"] = 0.5 * state.get("open", 0.0) + 0.5 * min(1.0, loudness)
            picture = np.full((SIZE * 3 // 2, SIZE), 128, np.uint8)  # I420: brightness, then two planes of colour.
            picture[: round(4 + state["open"] * (SIZE - 4))] = 200
            pictures.append(picture)
        return pictures


@dataclass(eq=False)
class Stream:
    """One live at the engine: a VideoGenerator (video_generator.py). Made by `Engine.open`."""

    _engine: Engine
    state: dict[str, float] = field(default_factory=dict)
    waiting: deque[Sound | SegmentEnd] = field(default_factory=deque)
    made: deque[Frame | SegmentEnd] = field(default_factory=deque)
    clears: int = 0
    trouble: Exception | None = None
    _rest: Sound = field(default_factory=lambda: np.zeros(0, np.int16))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def push_audio(self, sound: Sound | SegmentEnd) -> None:
        """Take sound of any length; wait while the live is far enough ahead."""
        chunk, clears = CHUNK_FRAMES * SAMPLES_PER_FRAME, self.clears
        if isinstance(sound, SegmentEnd):
            rest = np.pad(self._rest, (0, -len(self._rest) % chunk))  # Silence to the end of the last chunk.
        else:
            rest = np.concatenate((self._rest, sound))
        while len(rest) >= chunk:
            await self._until(lambda: self.ahead < CHUNKS_AHEAD_MAX)
            if self.clears != clears:
                return
            self.waiting.append(rest[:chunk])
            rest = rest[chunk:]
            self._engine.wake()
        self._rest = rest
        if isinstance(sound, SegmentEnd):
            self.waiting.append(sound)
            self._engine.wake()

    def clear_buffer(self) -> None:
        """Drop everything that was not shown yet, also what the model is making now."""
        self.clears += 1
        self.waiting.clear()
        self.made.clear()
        self._rest = np.zeros(0, np.int16)
        self.note()

    def take(self) -> Frame | SegmentEnd | None:
        """Return what comes next, if it is made already. Raise what the model has raised."""
        if self.trouble is not None:
            raise self.trouble
        if not self.made:
            return None
        self.note()
        return self.made.popleft()

    async def __aiter__(self) -> AsyncIterator[Frame | SegmentEnd]:
        while True:
            if (made := self.take()) is not None:
                yield made
            else:
                await self._until(lambda: self.made or self.trouble)

    @property
    def ahead(self) -> float:
        """How many chunks are made, or wait to be."""
        return len(self.waiting) + len(self.made) / CHUNK_FRAMES

    def note(self) -> None:
        self._changed.set()

    async def _until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        self._engine.forget(self)


class Engine:
    """One model for all lives of a process."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._streams: dict[Stream, None] = {}
        self._some = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def open(self) -> Stream:
        stream = Stream(self)
        self._streams[stream] = None
        return stream

    def forget(self, stream: Stream) -> None:
        self._streams.pop(stream, None)

    def wake(self) -> None:
        self._some.set()

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while batch := self._next_batch():
                await self._step(batch)

    def _next_batch(self) -> list[tuple[Stream, int, Sound]]:
        """Take the next chunk of each live that has one: of those with the least ahead, if there are too many."""
        for stream in self._streams:
            self._pass_ends(stream)
        ready = sorted((each for each in self._streams if each.waiting), key=lambda each: len(each.made))
        batch = []
        for stream in ready[:BATCH_MAX]:
            sound = stream.waiting.popleft()
            assert not isinstance(sound, SegmentEnd)
            batch.append((stream, stream.clears, sound))
        return batch

    async def _step(self, batch: list[tuple[Stream, int, Sound]]) -> None:
        states, sounds = [stream.state for stream, _, _ in batch], [sound for _, _, sound in batch]
        try:
            chunks = await asyncio.to_thread(self.model.step, states, sounds)
        except Exception as error:  # Every live of the step hears of it; the next step may go well.
            for stream, _, _ in batch:
                stream.trouble = error
                stream.note()
            return
        for (stream, clears, sound), pictures in zip(batch, chunks, strict=True):
            if stream.clears != clears:
                continue  # It was interrupted while the model worked.
            for picture, part in zip(pictures, np.split(sound, CHUNK_FRAMES), strict=True):
                stream.made.append(Frame(picture, part))
            self._pass_ends(stream)
            stream.note()

    def _pass_ends(self, stream: Stream) -> None:
        """The end of a sentence costs no step: it follows the last picture."""
        while stream.waiting and isinstance(stream.waiting[0], SegmentEnd):
            end = stream.waiting.popleft()
            assert isinstance(end, SegmentEnd)
            stream.made.append(end)
            stream.note()


async def load() -> Engine:
    """Load the model, once per process; every session has the engine as `session.shared`."""
    return Engine(await asyncio.to_thread(FakeModel))
