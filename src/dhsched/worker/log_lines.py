"""Log lines of a Worker's runtimes, on their way to the Infer-Controllers, for `dhsched live logs`.

The first line after a pause is sent in the same tick of the event loop, and lines that follow within FLUSH_S go
together: a Worker that is killed loses that much. A runtime that logs too much is not slowed down: lines over the
Worker's rate, or over what may wait while no controller is connected, are dropped, and a line of source `dropped` says
how many. Runtimes that log nothing cost nothing: there is no timer while no line waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from dhsched.access.bucket import Bucket
from dhsched.links.messages import LOG_LINES_MAX, LogLine, Source
from dhsched.types import LINE_BYTES_MAX

FLUSH_S = 0.1  # Lines are sent this often at most.
UNSENT_S = 1.0  # Lines that no controller takes are offered again after this long.
WAITING_MAX = 256  # Lines of one live that wait; further ones are dropped.
PIECES_MAX = 64  # Lines of one text, such as a traceback; the rest is dropped.
CUT = b" [...]"

Key = tuple[str, int]


class LiveLines:
    """The lines of one generation that wait, and how many were dropped since the last line of source `dropped`."""

    __slots__ = ("dropped", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[LogLine] = deque()
        self.dropped = 0


class LogLines:
    """The lines of one Worker. `send(key, lines)` returns whether a controller took the lines. `rate_per_s` limits the
    lines of all lives together; 0 sends none."""

    def __init__(self, send: Callable[[Key, list[LogLine]], bool], rate_per_s: float) -> None:
        self._send = send
        self._bucket = Bucket(rate_per_s, 0.0) if rate_per_s else None
        self._lives: dict[Key, LiveLines] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._flushed_at = float("-inf")

    def add(self, key: Key, source: Source, text: str | bytes) -> None:
        """Send the lines of a text soon."""
        if self._bucket is None:
            return
        loop = asyncio.get_running_loop()
        lines = self._lives.setdefault(key, LiveLines())
        pieces = lines_of(text)
        for piece in islice(pieces, PIECES_MAX):
            if len(lines.waiting) >= WAITING_MAX or self._bucket.take(loop.time()):
                lines.dropped += 1
            else:
                lines.waiting.append(LogLine(source, piece))
        lines.dropped += sum(1 for _ in pieces)
        if self._timer is None:
            self._timer = loop.call_at(max(loop.time(), self._flushed_at + FLUSH_S), self._flush)

    def leave(self, key: Key) -> None:
        """Send the waiting lines of a generation whose runtime has ended, and forget the generation."""
        lines = self._lives.pop(key, None)
        if lines is not None:
            self._flush_one(key, lines, last=True)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer, self._flushed_at = None, loop.time()
        for key, lines in [*self._lives.items()]:
            if self._flush_one(key, lines):
                del self._lives[key]
        if self._lives:
            self._timer = loop.call_later(UNSENT_S, self._flush)

    def _flush_one(self, key: Key, lines: LiveLines, *, last: bool = False) -> bool:
        """Send the lines of one generation; return whether nothing is left to send. Each generation may have one line
        of source `dropped` beyond the rate, its `last`."""
        while lines.waiting:
            if not self._send(key, [*islice(lines.waiting, LOG_LINES_MAX)]):
                return False
            for _ in range(min(LOG_LINES_MAX, len(lines.waiting))):
                lines.waiting.popleft()
        if lines.dropped:
            assert self._bucket is not None
            note = LogLine("dropped", b"%d lines" % lines.dropped)
            late = self._bucket.take(asyncio.get_running_loop().time()) and not last
            return not late and self._send(key, [note])
        return True


def lines_of(text: str | bytes) -> Iterator[bytes]:
    """Yield the lines of a text as they are sent: without what is over LINE_BYTES_MAX, and without empty ones."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    for line in raw.splitlines():
        if line.strip():
            yield line if len(line) <= LINE_BYTES_MAX else line[: LINE_BYTES_MAX - len(CUT)] + CUT


class Splitter:
    """Finds lines in the output of a process, which comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Return the lines that are complete now. Of a long line without an end, its beginning counts as a line."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            whole.append(self._rest)
            self._rest = b""
        return whole

    def end(self) -> bytes:
        """Return what was written after the last line."""
        return self._rest
