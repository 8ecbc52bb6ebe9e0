"""Entries on their way to a log of the store: nobody waits for them, and what cannot be written is dropped and said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

UNWRITTEN_MAX = 1_000  # Entries on their way to the store; past this, new ones are dropped.
WRITE_S = 2.0  # An entry that the store does not take within this time is dropped.

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Write(Protocol[E_contra]):
    """Writes one entry; the future is done when the store has it."""

    def __call__(self, entry: E_contra, /, *, deadline_s: float) -> asyncio.Future[Any]: ...


class Writer(Generic[E]):
    """The entries of one log. `dropped` is called with each entry that could not be written, and the reason."""

    def __init__(self, what: str, dropped: Callable[[E, str], None]) -> None:
        self._what = what
        self._dropped = dropped
        self._unwritten: set[asyncio.Future[Any]] = set()

    def write(self, entry: E, write: Write[E]) -> None:
        """Write one entry, without waiting for the store."""
        if len(self._unwritten) >= UNWRITTEN_MAX:
            self._dropped(entry, f"{UNWRITTEN_MAX} {self._what}s are on their way already")
            return
        writing = write(entry, deadline_s=WRITE_S)
        self._unwritten.add(writing)
        writing.add_done_callback(lambda done: self._written(entry, done))

    async def written(self, wait_s: float = WRITE_S) -> None:
        """Wait up to `wait_s` until all entries are written or dropped."""
        if self._unwritten:
            await asyncio.wait([*self._unwritten], timeout=wait_s)

    def _written(self, entry: E, done: asyncio.Future[Any]) -> None:
        self._unwritten.discard(done)
        if done.cancelled():
            self._dropped(entry, "this replica stopped")
        elif (error := done.exception()) is not None:
            self._dropped(entry, str(error))
