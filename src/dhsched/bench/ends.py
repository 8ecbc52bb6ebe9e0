"""The Workers' end of the benchmarks: runtimes that tell what they consume, and when.

`timed`, of the input benchmark, counts, and tells how late each item was. Its payload begins with the time at which it
was pushed, by the clock that all processes of one machine share. Once in a while, and when it is asked (`tell`), it
prints a line: {"consumed": n, "late_ms": [...]} of the items since.

`measured`, of the recovery benchmark, writes down a line per item before the item is acked, so that a Worker that is
killed has told all that it consumed: the time by that clock, the live, its epoch, the item's number. One file per
process, in the folder that DHSCHED_BENCH_RECORDS names.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from dhsched.worker import Session

TELL_S = 0.02  # What is told late is counted as time that the items took.
RECORDS = "DHSCHED_BENCH_RECORDS"


class Counter:
    """What one process consumed."""

    def __init__(self) -> None:
        self.consumed = 0
        self.late_ms: list[float] = []
        self._told_at = 0.0

    def took(self, payload: bytes) -> None:
        now = time.monotonic()
        self.consumed += 1
        self.late_ms.append((now - float(payload[:20])) * 1000)
        if now - self._told_at > TELL_S:
            self.tell(now)

    def tell(self, now: float | None = None) -> None:
        self._told_at = now or time.monotonic()
        line = {"consumed": self.consumed, "late_ms": [round(late, 3) for late in self.late_ms]}
        self.late_ms = []
        os.write(sys.stdout.fileno(), (json.dumps(line) + "\n").encode())


counter = Counter()
_telling: list[asyncio.Task[None]] = []


async def timed(session: Session) -> None:
    """The runtime: as little as `null`, and a clock."""
    if not _telling:
        _telling.append(asyncio.create_task(_tell_now_and_then()))
    async for item in session.inputs():
        counter.took(item.payload)


async def _tell_now_and_then() -> None:
    while True:
        await asyncio.sleep(TELL_S)
        if counter.late_ms:
            counter.tell()


def stamp() -> bytes:
    return b"%020.6f" % time.monotonic()


_file: list[int] = []


async def measured(session: Session) -> None:
    live, epoch = session.live, session.generation.epoch
    async for item in session.inputs():
        write(f"{time.monotonic():.6f} {live} {epoch} {item.seq}\n")


def write(line: str) -> None:
    if not _file:
        path = os.path.join(os.environ[RECORDS], f"{os.getpid()}.txt")
        _file.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    os.write(_file[0], line.encode())
