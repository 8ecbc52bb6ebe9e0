"""Runtimes of the benchmarks' Workers, which record what they consume and when.

`timed`, of the input benchmark, counts items and measures how late each one is: an item's payload begins with the time
of its push, by the monotonic clock that all processes of one machine share. Every TELL_S, `timed` prints a line with
the count and the items since the last line: {"consumed": n, "late_ms": [...]}.

`measured`, of the recovery benchmark, writes a line per item before the item is acked, so that the records of a killed
Worker are complete: the time by that clock, the live, its epoch, the item's number. There is one file per process, in
the folder that DHSCHED_BENCH_RECORDS names.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from dhsched.worker import Session

TELL_S = 0.02  # Time between two lines. It is short because the benchmark counts it as time that the items took.
RECORDS = "DHSCHED_BENCH_RECORDS"


class Counter:
    """The items that one process consumed."""

    def __init__(self) -> None:
        self.consumed = 0
        self.late_ms: list[float] = []

    def took(self, payload: bytes) -> None:
        self.consumed += 1
        self.late_ms.append((time.monotonic() - float(payload[:20])) * 1000)

    async def keep_telling(self) -> None:
        """Print a line every TELL_S if items were consumed since the last line."""
        while True:
            await asyncio.sleep(TELL_S)
            if self.late_ms:
                self._tell()

    def _tell(self) -> None:
        line = {"consumed": self.consumed, "late_ms": [round(late, 3) for late in self.late_ms]}
        self.late_ms = []
        os.write(sys.stdout.fileno(), (json.dumps(line) + "\n").encode())


counter = Counter()
_telling: list[asyncio.Task[None]] = []


async def timed(session: Session) -> None:
    """Consume items as the runtime `null` does, and count and time them."""
    if not _telling:
        _telling.append(asyncio.create_task(counter.keep_telling()))
    async for item in session.inputs():
        counter.took(item.payload)


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
