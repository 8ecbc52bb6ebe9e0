"""The histories of one run: the one that the store is in, and those that it was set back from.

The trace lies in the store and goes back with it. So before a fault that takes something back, `keep` keeps the model
as it is, and the trace is trimmed no further: the store that comes after the fault has every record since. `part` goes
on from what was kept; what was followed until then is read to its end and is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dhsched.store.homes import shown
from dhsched.store.keys import Keys
from dhsched.store.link.link import Link
from tests.chaos.replay import Replay, Tally
from tests.chaos.trace import TRACE

RECORDS_AT_ONCE = 500
RECORDS_A_TURN = (
    10  # Between two turns of the event loop. With one, a busy loop would follow slower than the store goes.
)
TRACE_KEY = Keys("main").of(TRACE)


@dataclass
class Lost:
    """A history that is no longer the store's. `earlier` are the homes that had ended when its lost end began.
    Between `since` and `until` it may have been written by some while others had the store that came after it."""

    replay: Replay
    earlier: frozenset[str]
    since: float = field(default_factory=time.monotonic)
    until: float = float("inf")

    @property
    def homes(self) -> set[str]:
        """The homes of the lost end, as events show them."""
        return {shown(row.name) for row in self.replay.state.cell.homes if row.name not in self.earlier}


class Histories:
    """See the module."""

    def __init__(self, tell: Callable[[str, list[Any]], None]) -> None:
        self.tally = Tally(tell)
        self.current = Replay(self.tally)
        self.lost: list[Lost] = []
        self.reading = asyncio.Lock()
        """Held by whoever reads the store's trace, and while the store is started with an older one."""
        self._kept: Replay | None = None

    async def read(self, link: Link, replay: Replay) -> int:
        """Follow the next records of a trace; return how many there were."""
        found = await link.call("XRANGE", TRACE_KEY, f"({replay.tick}-0", "+", "COUNT", RECORDS_AT_ONCE)
        for n, (_, (_, record)) in enumerate(found):
            replay.take(record)
            if n % RECORDS_A_TURN == 0:
                await asyncio.sleep(0)  # Proxies and applications share this loop.
        if found and replay is self.current and self._kept is None:
            await link.call("XTRIM", TRACE_KEY, "MINID", f"{replay.tick}-0")
        return len(found)

    def keep(self) -> None:
        """From now on the store may be set back to this moment, or any later one."""
        self._kept = self.current.branch()

    def part(self) -> Lost:
        """The store is another one from now on, with what was kept. What was followed so far is lost; its caller reads
        it to its end."""
        assert self._kept is not None
        lost = Lost(self.current, frozenset(row.name for row in self._kept.state.cell.homes[:-1]))
        self.current, self._kept = self._kept, None
        self.lost.append(lost)
        return lost

    async def read_to_end(self, link: Link, lost: Lost) -> None:
        """Follow a lost history, to which nobody writes any more, to its last record."""
        while await self.read(link, lost.replay):
            pass
