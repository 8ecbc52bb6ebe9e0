"""Log lines of runtimes, on their way to the store.

Nobody waits for them and nothing depends on them: a Worker is not answered, and what is over a limit, refused by the
fence or not taken by the store is dropped and counted. A line needs no pull: a runtime that fails before it claims its
live logs the reason, too. The script `keep_lines` decides whether a live is the Worker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from dhsched.access.bucket import Bucket
from dhsched.infer.settings import InferSettings
from dhsched.links.messages import Log
from dhsched.store.records.logs import LogRecords, RuntimeLine
from dhsched.store.records.writer import Writer
from dhsched.types import check_live, printable

log = structlog.get_logger(__name__)

BATCH_MAX = 50  # Lines in one call; further ones wait for the next, because a long call holds up the steps of others.
WORKER_LINES_PER_S = 200.0  # Lines of one Worker's connection per second; further ones are dropped.


def worker_bucket() -> Bucket:
    """Return the limit on the lines of one Worker's connection."""
    return Bucket(WORKER_LINES_PER_S, asyncio.get_running_loop().time())


class Logs:
    """The lines that this controller passes to the store. `kept` and `dropped` count them."""

    def __init__(self, records: LogRecords, settings: InferSettings, store_is_full: Callable[[], bool]) -> None:
        self.kept = 0
        self.dropped = 0
        self._records = records
        self._settings = settings
        self._store_is_full = store_is_full
        self._bucket = Bucket(settings.log_lines_per_s, 0.0)
        self._writer = Writer("log line", self._write, self._drop, batch_max=BATCH_MAX)

    def take(self, bucket: Bucket, worker: str, said: Log) -> None:
        """Pass the lines of one message on, as far as the limits of this Worker and of this controller allow."""
        live, now = check_live(said.live), asyncio.get_running_loop().time()
        wanted = self._settings.log_lines_max > 0 and not self._store_is_full()
        for line in said.lines:
            if not wanted or bucket.take(now) or self._bucket.take(now):
                self.dropped += 1
                continue
            text = printable(line.text.decode(errors="replace")).encode()
            self._writer.write(RuntimeLine(live, worker, said.epoch, line.source, text))

    async def written(self) -> None:
        """Wait until all lines are written or dropped, for two seconds at most."""
        await self._writer.written()

    def _write(self, lines: Sequence[RuntimeLine], /, *, deadline_s: float) -> asyncio.Future[Any]:
        settings = self._settings
        writing = self._records.write(lines, settings.log_lines_max, settings.log_bytes_max, deadline_s=deadline_s)
        writing.add_done_callback(lambda done: self._count(len(lines), done))
        return writing

    def _count(self, lines: int, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.kept += done.result()
            self.dropped += lines - done.result()

    def _drop(self, line: RuntimeLine, reason: str) -> None:
        self.dropped += 1
        log.debug("a log line could not be written", live=line.live, worker=line.worker, reason=reason)
