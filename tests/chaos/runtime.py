"""The checking runtime: writes down what each generation consumes, and how many runtimes there are at the moment.

    dhsched run worker --runtime tests.chaos.runtime:checked ...

One file of NDJSON per process, in DHSCHED_CHAOS_RECORDS. A line is one `write`, made before the item is acked, so it is
there even if the process is killed in the next instant. Times are of the monotonic clock, which all processes of one
machine share. It works a little for each item, is slow to go at times, and dies of what is meant to kill it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from typing import Any

from dhsched.worker import Session

RECORDS = "DHSCHED_CHAOS_RECORDS"
POISON, CRASH = "poison", "crash"
"""Texts that begin so kill a runtime: always, or every other time."""
WORK_MAX_S = 0.02
TEARDOWN_MAX_S = 0.4


class Recorder:
    """The file of this process, and the runtimes in it."""

    def __init__(self) -> None:
        self.running = 0
        self._file = -1

    def write(self, session: Session, event: str, **fields: Any) -> None:
        if self._file < 0:
            path = os.path.join(os.environ[RECORDS], f"{os.getpid()}.ndjson")
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        generation = session.generation
        line = {"t": time.monotonic(), "live": session.live, "worker": generation.worker, "epoch": generation.epoch}
        line |= {"event": event, "running": self.running, **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")


recorder = Recorder()


SHOWN = "default/show"
"""The live that has a picture, where there is a room (picture.py)."""


async def show(session: Session) -> None:
    """Publish the picture of this generation, as soon as it is claimed."""
    from tests.chaos import picture  # Imported by the zygote, if there is a room.

    await session.claimed.wait()
    if session.publish is not None:
        await picture.publish(session.live, session.generation.epoch, session.publish)


async def checked(session: Session) -> None:
    recorder.running += 1
    recorder.write(session, "open")
    showing = asyncio.create_task(show(session)) if session.live == SHOWN else None
    try:
        async for item in session.inputs():
            text = item.text
            recorder.write(session, "item", seq=item.seq, kind=item.kind, text=text)
            session.state = str(item.seq).encode()
            await asyncio.sleep(random.uniform(0, WORK_MAX_S))
            if text.startswith(POISON) or (text.startswith(CRASH) and random.random() < 0.5):
                raise RuntimeError(f"{session.live} was given {text}")
        if random.random() < 0.2:
            await asyncio.sleep(random.uniform(0, TEARDOWN_MAX_S))
    finally:
        if showing is not None:
            showing.cancel()
        recorder.running -= 1
        recorder.write(session, "close")
