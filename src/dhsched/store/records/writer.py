"""Entries on their way to a log of the store: nobody waits for them, and what cannot be written is dropped and said.

One call is in flight at a time. What comes in the meantime goes together with the next call, so a busy replica makes
few calls, and one that is idle writes at once. What nobody else can say is kept (`insist`), and written again until the
store has it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

UNWRITTEN_MAX = 5_000  # Entries on their way to the store; past this, new ones are dropped.
BATCH_MAX = 500  # Entries of one call, about 2 ms of the store. A replica that has much to do makes few calls a second.
WRITE_S = 2.0  # What the store does not take within this time is dropped.
AGAIN_S = 1.0  # Time until what is kept is written again.

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Write(Protocol[E_contra]):
    """Writes entries; the future is done when the store has them."""

    def __call__(self, entries: Sequence[E_contra], /, *, deadline_s: float) -> asyncio.Future[Any]:
        """Send the entries to the store."""


class Writer(Generic[E]):
    """The entries of one log. `dropped` is called with each entry that could not be written, and the reason. One call
    writes `batch_max` entries at most."""

    def __init__(
        self, what: str, write: Write[E], dropped: Callable[[E, str], None], *, batch_max: int = BATCH_MAX
    ) -> None:
        self._what = what
        self._write = write
        self._dropped = dropped
        self._batch_max = batch_max
        self._unwritten: deque[tuple[E, float]] = deque()
        """And when each is dropped. Those of the call in flight are first."""
        self._in_call = 0
        self._writing: asyncio.Future[Any] | None = None

    def write(self, entry: E, *, insist: bool = False) -> None:
        """Write one entry, without waiting for the store. With `insist` it is written again until the store has it."""
        if len(self._unwritten) >= UNWRITTEN_MAX:
            self._dropped(entry, f"{UNWRITTEN_MAX} {self._what}s are on their way already")
            return
        self._unwritten.append((entry, math.inf if insist else monotonic() + WRITE_S))
        self._send()

    async def written(self, wait_s: float = WRITE_S) -> None:
        """Wait up to `wait_s` until all entries are written or dropped."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while self._writing is not None and (left_s := until - loop.time()) > 0:
            await asyncio.wait([self._writing], timeout=left_s)

    def _send(self) -> None:
        if self._writing is not None or not self._unwritten:
            return
        batch = [entry for entry, _ in islice(self._unwritten, self._batch_max)]
        self._in_call = len(batch)
        self._writing = self._write(batch, deadline_s=WRITE_S)
        self._writing.add_done_callback(self._sent)

    def _sent(self, done: asyncio.Future[Any]) -> None:
        batch = [self._unwritten.popleft() for _ in range(self._in_call)]
        self._writing = None
        reason = "this replica stopped" if done.cancelled() else str(done.exception() or "")
        kept: list[tuple[E, float]] = []
        if reason:
            now = monotonic()
            while self._unwritten and self._unwritten[0][1] <= now:
                batch.append(self._unwritten.popleft())
            for row in batch:
                if row[1] == math.inf and not done.cancelled():
                    kept.append(row)
                else:
                    self._dropped(row[0], reason)
            self._unwritten.extendleft(reversed(kept))
        if kept:
            asyncio.get_running_loop().call_later(AGAIN_S, self._send)
        else:
            self._send()
