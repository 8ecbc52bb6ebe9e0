"""Runtimes whose model has a known capacity: a lock is held for 12 ms of each frame of 40 ms, so three lives fit."""

from __future__ import annotations

import asyncio

from dhsched.worker import Session

FRAME_S, HELD_S, FRAMES = 0.040, 0.012, 10
LATE_S = 0.060  # A frame that would be done later than this is left out by `leaves_out`.


class Gpu:
    """Does frames one after the other, each in HELD_S of its own time: a host that wakes late costs it nothing."""

    def __init__(self) -> None:
        self._free_at = 0.0

    async def frame(self) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + HELD_S
        await asyncio.sleep(self._free_at - now)

    def takes(self, due: float) -> bool:
        """Do a frame that may begin at `due`; return False if it would be done LATE_S later, and is left out."""
        done_at = max(self._free_at, due) + HELD_S
        if done_at > due + LATE_S:
            return False
        self._free_at = done_at
        return True


async def speaks(session: Session) -> None:
    gpu: Gpu = session.shared
    loop = asyncio.get_running_loop()
    due = loop.time()
    async for item in session.inputs():
        if item.text == "crash":
            raise ValueError("no such word")
        due = max(due, loop.time() - FRAME_S)
        for _ in range(FRAMES):
            await gpu.frame()
            due += FRAME_S
            await asyncio.sleep(max(0.0, due - loop.time()))


async def leaves_out(session: Session) -> None:
    """Ack in time whatever happens, and leave out frames that the model has no time for."""
    gpu: Gpu = session.shared
    loop = asyncio.get_running_loop()
    due = loop.time()
    async for _ in session.inputs():
        due = max(due, loop.time() - FRAME_S)
        for _ in range(FRAMES):
            if not gpu.takes(due):
                session.late(FRAME_S)
            due += FRAME_S
            await asyncio.sleep(max(0.0, due - loop.time()))


async def publishes(session: Session) -> None:
    async for _ in session.inputs():
        if session.publish is None:
            raise ValueError("nowhere to publish")
        await asyncio.sleep(FRAME_S)


def broken() -> None:
    raise RuntimeError("no model")
