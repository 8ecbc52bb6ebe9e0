"""The search for a capacity: numbers of lives are doubled until one is late, then the gap is halved. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

INFINITE = float("inf")
GOLDEN = 0.6180339887  # Multiples of the golden ratio, modulo 1, are spread evenly however many there are.


class Ack(NamedTuple):
    """One ack of a live: the item up to which all is acked, when, and how much output was late until then."""

    item: int
    at: float
    late_s: float


class Pace(NamedTuple):
    """Seconds per item of one live: from ack to ack, and of output that the runtime reports as late."""

    acked_s: float
    late_s: float

    @property
    def total_s(self) -> float:
        return self.acked_s + self.late_s


@dataclass(frozen=True, slots=True)
class Step:
    """One number of lives, as measured: the pace of the slowest live and of all on average, in seconds. `missed_s` is
    the part of the slowest pace that is late output."""

    lives: int
    slowest_s: float
    mean_s: float
    late: bool
    missed_s: float = 0.0


class Search:
    """The largest number of lives, up to `most`, that is not late."""

    def __init__(self, most: int) -> None:
        self.good = 0
        self._bad = most + 1  # The smallest number that was late, or that is not to be tried.
        self._late = False

    def next(self) -> int | None:
        """Return the number to try next; None when `good` is known."""
        if self._bad - self.good <= 1:
            return None
        if self._late:
            return (self.good + self._bad) // 2
        return min(max(1, self.good * 2), self._bad - 1)

    def tried(self, lives: int, *, late: bool) -> None:
        if late:
            self._bad, self._late = lives, True
        else:
            self.good = lives


def pace_of(acks: Sequence[Ack]) -> Pace:
    """Return the mean pace between the first and the last ack; infinite if there are not two."""
    if len(acks) < 2:
        return Pace(INFINITE, 0.0)
    first, last = acks[0], acks[-1]
    items = last.item - first.item
    return Pace((last.at - first.at) / items, max(0.0, last.late_s - first.late_s) / items)


def step_of(paces: Sequence[Pace], limit_s: float) -> Step:
    """Return the step in which each live had one of these paces. It is late if the slowest live is above the limit."""
    slowest = max(paces, key=lambda pace: pace.total_s)
    mean_s = sum(pace.total_s for pace in paces) / len(paces)
    return Step(len(paces), slowest.total_s, mean_s, late=slowest.total_s > limit_s, missed_s=slowest.late_s)


def disturbed(steps: Sequence[Step], tolerance: float) -> bool:
    """Return whether fewer lives were slower than more, by more than the tolerance, so that something else than the
    lives made them slow. The steps are in the order of their lives."""
    return any(fewer.slowest_s > more.slowest_s * (1 + tolerance) for fewer, more in combinations(steps, 2))


def first_wait_s(number: int, pace_s: float) -> float:
    """Return how long live `number`, counted from 0, waits before its first item.

    Lives that begin together would all need the device at the same moments, as independent speakers do not.
    """
    return number * GOLDEN % 1.0 * pace_s
