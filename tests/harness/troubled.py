"""A runtime for tests that comes to grief over certain texts, in ways that real ones do."""

from __future__ import annotations

import time

from dhsched.worker import Session
from dhsched.worker.runtimes import say


class OutOfMemoryError(RuntimeError):
    """As a GPU library says it."""


async def speak(session: Session) -> None:
    say(session, "open")
    async for item in session.inputs():
        say(session, item.kind, seq=item.seq, text=item.text)
        if item.text == "crash":
            allocate()
        if item.text == "return":
            return
        if item.text.startswith("block "):
            think(float(item.text.removeprefix("block ")), session.generation.epoch)


def allocate() -> None:
    raise OutOfMemoryError("CUDA out of memory.\n\x1b[31mTried to allocate 2.00 GiB")


def think(seconds: float, epoch: int) -> None:
    """Blocking code on the event loop; one that blocks for ever does so in its first generation only."""
    if epoch == 1 or seconds < 60:
        time.sleep(seconds)
