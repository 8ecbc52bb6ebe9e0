"""From a schedule that fails to the fewest faults that still fail in the same way (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.virtual.schedule import Fault

RUNS_MAX = 60  # What is left after this many runs is printed as it is.

Fails = Callable[[Sequence[Fault]], bool]


def kind_of(violation: str) -> str:
    """The judge that found a violation: `12.345 s: ledger: I6: ...` is `ledger`."""
    return violation.split(": ")[1]


def time_of(violation: str) -> float:
    return float(violation.split(" ", 1)[0])


def shrink(faults: Sequence[Fault], fails: Fails, runs_max: int = RUNS_MAX) -> list[Fault]:
    """Return a part of `faults` that fails, and of which no fault can be left out, unless the runs are used up."""
    left, runs, parts = [*faults], 0, 2
    if fails([]):
        return []
    while len(left) > 1 and runs < runs_max:
        size = -(-len(left) // parts)
        for first in range(0, len(left), size):
            without = left[:first] + left[first + size :]
            runs += 1
            if fails(without):
                left, parts = without, max(2, parts - 1)
                break
            if runs >= runs_max:
                break
        else:
            if size == 1:
                break
            parts = min(len(left), 2 * parts)
    return left
