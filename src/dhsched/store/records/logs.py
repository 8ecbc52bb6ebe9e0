"""The log lines of a live's runtimes: the last of them, over all generations (docs/reference/state.md, `logs:<L>`).

Nothing is decided by them. Lines are numbered from 1 for as long as the live exists: the number is the cursor from
which a reader goes on, and a gap before the first one says how many lines are not kept any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from dhsched.store.records.part import Part


class RuntimeLine(NamedTuple):
    """A line as a Worker sends it: `source` is a level, or the output that the line was written to."""

    live: str
    worker: str
    epoch: int
    source: str
    text: bytes


class KeptLine(NamedTuple):
    """A line as it is kept, with its number and the store's time."""

    n: int
    at_ms: int
    epoch: int
    worker: str
    source: str
    text: str


class LogRecords(Part):
    """The logs of a cell's lives, by the full name of each live."""

    def write(
        self, lines: Sequence[RuntimeLine], lines_max: int, bytes_max: int, *, deadline_s: float
    ) -> asyncio.Future[Any]:
        """Add lines, for many lives in one call. The future is the number of lines that were kept: the others are of
        lives that are not their Worker's."""
        return self._run(
            "keep_lines", lines_max, bytes_max, *(part for line in lines for part in line), deadline_s=deadline_s
        )

    async def after(self, live: str, n: int, limit: int) -> list[KeptLine]:
        """Return the latest lines after number `n`, `limit` of them at most, the oldest first."""
        found = [read_line(stored) for stored in await self._call("LRANGE", "logs", live, -limit, -1)]
        return [line for line in found if line.n > n]


def read_line(stored: bytes) -> KeptLine:
    n, _, at_ms, epoch, worker, source, text = stored.split(b" ", 6)
    return KeptLine(int(n), int(at_ms), int(epoch), worker.decode(), source.decode(), text.decode(errors="replace"))
