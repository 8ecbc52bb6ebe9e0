"""The judge `beside`: while something is wrong with the store of one cell alone, nobody else is worse off.

A call for a live of another cell, a list of all cells, and a Worker that registers are judged if, from CALM_S before
they began until they were answered, nothing was wrong but with stores of other cells, and something was. Then they are
answered: without an error, and soon. A list may lack what is in a cell that is away, which the client says with an
error at the end of the list. A run with one cell has no such calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dhsched.errors import DhschedError, Refused, Unreachable
from tests.virtual.loop import VirtualLoop

CALM_S = 25.0  # What follows another fault than one of a store is over by then: a client's call has 30 s at most.
KEPT_S = 300.0  # Longer than any call that is judged.
FAILURES = frozenset({"STORE_UNAVAILABLE", "BUSY", "NOT_READY", "INTERNAL", "TIMEOUT", "UNAUTHORIZED"})
"""Codes that say nothing of the live or of its cell's slots."""
LEFT_OUT = re.compile(r"cell (.+) cannot be asked now: the \w+ there are not in this list")
MOST_S = {"push": 1.5, "get": 1.5, "end": 1.5, "create": 20.0, "list": 10.0, "registration": 12.0}
"""The longest that each kind of call may take: delays are a twentieth of a second at most, and a create waits for a
slot."""


@dataclass(slots=True)
class Trouble:
    """A fault: of the store of one cell, or, without a cell, of anything else."""

    cell: str
    since: float
    until: float = float("inf")


class Beside:
    """See the module. `cell_of` returns the cell of a live's id, `wrong` takes a violation."""

    def __init__(self, loop: VirtualLoop, cell_of: Callable[[str], str], wrong: Callable[[str], None]) -> None:
        self.judged: Counter[str] = Counter()
        """How many calls of each kind were judged."""
        self._loop, self._cell_of, self._wrong = loop, cell_of, wrong
        self._troubles: list[Trouble] = []

    @contextmanager
    def trouble(self, cell: str) -> Iterator[None]:
        """A fault is under way. `cell` is empty unless it is one of the store of one cell."""
        now = self._loop.now
        self._troubles = [each for each in self._troubles if each.until > now - KEPT_S]
        self._troubles.append(one := Trouble(cell, now))
        try:
            yield
        finally:
            one.until = self._loop.now

    @contextmanager
    def call(self, kind: str, live_id: str = "") -> Iterator[None]:
        """A call is under way, for one live or, without its id, for all cells."""
        began = self._loop.now
        try:
            yield
        except DhschedError as error:
            self.answered(kind, live_id, began, error)
            raise
        self.answered(kind, live_id, began)

    def answered(self, kind: str, live_id: str, began: float, error: DhschedError | None = None) -> None:
        """Judge a call that has its answer, or an error, now."""
        now = self._loop.now
        own = self._cell_of(live_id) if live_id else ""
        near = [each for each in self._troubles if each.until > began - CALM_S and each.since < now]
        away = sorted({each.cell for each in near if each.cell and each.until > began})
        if not away or any(each.cell in ("", own) for each in near):
            return
        self.judged[kind] += 1
        what = f"{kind} {live_id}".strip() + (f" of cell {own}" if own else "")
        beside = f"while nothing was wrong but with cell {', '.join(away)}"
        lacks = left_out(error) if error is not None else set()
        if error is not None and has_failed(error) and not (lacks and lacks <= {each.cell for each in near}):
            self._wrong(f"beside: {what} failed {beside}: {error}")
        elif now - began > MOST_S[kind]:
            self._wrong(f"beside: {what} took {now - began:.1f} s {beside}, and {MOST_S[kind]:g} s is the most")


def left_out(error: DhschedError) -> set[str]:
    """Return the cells that a list lacks, as the client says at its end; none if the error is another one."""
    said = LEFT_OUT.match(str(error)) if isinstance(error, Unreachable) else None
    return set(said[1].split(", ")) if said else set()


def has_failed(error: DhschedError) -> bool:
    """Return whether an error is no answer: it says nothing of the live."""
    return not isinstance(error, Refused) or error.code in FAILURES
