"""The Workers' end of the recovery benchmark: a runtime that writes down what it consumes, and when.

A line per item, written before it is acked, so that a Worker that is killed has told all that it consumed: the time by
the clock that all processes of one machine share, the live, its epoch, the item's number. One file per process, in
the folder that DHSCHED_BENCH_RECORDS names.
"""

from __future__ import annotations

import os
import time

from dhsched.worker import Session

RECORDS = "DHSCHED_BENCH_RECORDS"
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
