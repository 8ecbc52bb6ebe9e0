"""Creates that wait for a free slot, first come first served within this replica.

Nothing is promised by standing here: the store admits. A refresh of the view that shows free slots wakes as many as
there are slots, from the front; and everybody looks for itself now and then, because a view may be wrong. Whoever looks
in vain keeps its place.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count


class CreateQueue:
    """The line. `waiting_max` bounds it."""

    def __init__(self, waiting_max: int) -> None:
        self._max = waiting_max
        self._waiting: OrderedDict[int, asyncio.Event] = OrderedDict()
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self._max

    @contextmanager
    def place(self) -> Iterator[asyncio.Event]:
        """Stand in line; the event is set when it may be one's turn."""
        number, turn = next(self._numbers), asyncio.Event()
        self._waiting[number] = turn
        try:
            yield turn
        finally:
            del self._waiting[number]

    def wake(self, slots: int) -> None:
        """There may be a free slot for this many."""
        for turn in list(self._waiting.values())[: max(0, slots)]:
            turn.set()
