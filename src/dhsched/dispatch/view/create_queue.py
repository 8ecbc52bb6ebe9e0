"""Creates that wait for a free slot, first come first served within this replica.

A place in the queue promises nothing: the store admits. A refresh of the view that shows free slots wakes as many
creates as there are slots, from the front. Besides, each create tries again every `wait_retry_s`, because a view may be
wrong. A create that tries in vain keeps its place.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count


class CreateQueue:
    """The queue of waiting creates. While `waiting_max` creates wait, `full` is true and no further one should wait."""

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
        """Wait in the queue while the block runs; the yielded event is set when a slot may be free for this create."""
        number, turn = next(self._numbers), asyncio.Event()
        self._waiting[number] = turn
        try:
            yield turn
        finally:
            del self._waiting[number]

    def wake(self, slots: int) -> None:
        """Wake the first `slots` creates of the queue."""
        for turn in list(self._waiting.values())[: max(0, slots)]:
            turn.set()
