"""What clients, runtimes and services saw of a store that failed over, and whether it keeps the promises.

Everything here is a value: the books are written by failover_load.py and failover.py, and judged when all is over.
Lives are named without their tenant. Times are of one monotonic clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

Fate = Literal["", "accepted", "refused", "unknown"]
SHOWN = 5  # Examples that a sentence names; the others are only counted.


@dataclass(slots=True)
class Push:
    """One item that a client pushed. `producer` is empty for a POST; `again` counts how often a GAP told that the store
    had lost the item, after which it was sent anew."""

    live: str
    text: str
    producer: str = ""
    fate: Fate = ""
    at: float = 0.0
    code: str = ""
    again: int = 0


class Consumed(NamedTuple):
    """One item, as a runtime was given it."""

    live: str
    worker: str
    epoch: int
    text: str
    at: float


class Opened(NamedTuple):
    """One runtime that began."""

    live: str
    worker: str
    epoch: int
    at: float


class Issued(NamedTuple):
    """A number that somebody was told of: by the step `commit` or `reserve`, or in the answer of a call. `again`: the
    answer repeats an earlier one."""

    live: str
    epoch: int
    worker: str
    how: Literal["commit", "reserve", "answer"]
    again: bool = False


class Granted(NamedTuple):
    """A pull that was granted."""

    live: str
    epoch: int
    pull_no: int


class Registered(NamedTuple):
    """A WorkerID, and the boot that it was given to."""

    worker: str
    boot: str


@dataclass
class Books:
    """All that was seen in one test. `losses_said` counts the events that told of a loss."""

    pushes: list[Push] = field(default_factory=list)
    consumed: list[Consumed] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    issued: list[Issued] = field(default_factory=list)
    granted: list[Granted] = field(default_factory=list)
    registered: list[Registered] = field(default_factory=list)
    losses_said: int = 0

    def accepted(self, live: str = "") -> list[Push]:
        return [push for push in self.pushes if push.fate == "accepted" and live in ("", push.live)]

    def never_consumed(self) -> list[Push]:
        """Return the accepted items that no runtime was given."""
        seen = {(one.live, one.text) for one in self.consumed}
        return [push for push in self.accepted() if (push.live, push.text) not in seen]

    def restarts(self, after: float) -> Counter[str]:
        """Return how many runtimes of each live began after this time."""
        return Counter(one.live for one in self.opened if one.at > after)

    def gap_s(self, after: float) -> float:
        """Return the longest time from `after` on in which no push was accepted."""
        times = [after, *sorted(push.at for push in self.accepted() if push.at > after)]
        return max((later - earlier for earlier, later in pairwise(times)), default=float("nan"))


# -- promises. Each function yields its violations as sentences.


def every_push_has_ended(books: Books) -> Iterator[str]:
    if open_ones := [push.text for push in books.pushes if not push.fate]:
        yield f"{len(open_ones)} pushes have no end: {shown(open_ones)}"


def accepted_is_consumed_or_said_lost(books: Books, healed_at: float) -> Iterator[str]:
    """What was accepted from `healed_at` on must be consumed; before that, a loss that an event tells of is allowed."""
    missing = books.never_consumed()
    after = [push.text for push in missing if push.at >= healed_at]
    before = [push.text for push in missing if push.at < healed_at]
    if after:
        yield f"{len(after)} items were accepted after the failover and never consumed: {shown(after)}"
    if before and not books.losses_said:
        yield f"{len(before)} items were accepted and lost, and nothing says so: {shown(before)}"


def no_number_twice(books: Books) -> Iterator[str]:
    """Over all primaries: an epoch of a live has one Worker and one commit, a pull one number, a WorkerID one boot."""
    owners: dict[tuple[str, int], set[str]] = defaultdict(set)
    seen: list[Issued | Opened | Consumed] = [*books.issued, *books.opened, *books.consumed]
    for each in seen:
        owners[each.live, each.epoch].add(each.worker)
    if two := [f"{live}@{epoch} is {' and '.join(sorted(of))}" for (live, epoch), of in owners.items() if len(of) > 1]:
        yield f"{len(two)} numbers have two Workers: {shown(two)}"
    for how in ("commit", "reserve"):
        first = ((each.live, each.epoch) for each in books.issued if each.how == how and not each.again)
        yield from repeated(first, f"numbers were given out twice ({how})")
    yield from repeated(books.granted, "pulls were granted twice")
    boots: dict[str, set[str]] = defaultdict(set)
    for worker, boot in books.registered:
        boots[worker].add(boot)
    if shared := [worker for worker, of in boots.items() if len(of) > 1]:
        yield f"{len(shared)} WorkerIDs have two boots: {shown(shared)}"


def only_touched_lives_restart(
    books: Books, *, lost_at: float, quiet: Collection[str], restarts_max: int = 1
) -> Iterator[str]:
    """A live without a change in the lost time keeps its runtime; any other begins at most `restarts_max` anew."""
    restarts = books.restarts(lost_at)
    if restarted := sorted(live for live in restarts if live in quiet):
        yield f"{len(restarted)} of {len(quiet)} lives restarted, which the loss did not touch: {shown(restarted)}"
    often = {live: count for live, count in restarts.items() if count > restarts_max and live not in quiet}
    if often:
        yield f"{len(often)} lives restarted more than {restarts_max} times: {dict(sorted(often.items())[:SHOWN])}"


def repeated(values: Iterable[tuple[object, ...]], what: str) -> Iterator[str]:
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        yield f"{len(twice)} {what}: {shown(twice)}"


def shown(some: Collection[object]) -> str:
    first = ", ".join(str(each) for each in [*some][:SHOWN])
    return first + (f" and {len(some) - SHOWN} more" if len(some) > SHOWN else "")


def judge(
    books: Books, *, lost_at: float, healed_at: float, quiet: Collection[str] = (), restarts_max: int = 1
) -> list[str]:
    """Return what breaks a promise. `lost_at` is when the store lost something, or stopped; `healed_at` when services
    reached the store that came after it. `quiet` are lives without a change between the kept state and `healed_at`."""
    return [
        *every_push_has_ended(books),
        *accepted_is_consumed_or_said_lost(books, healed_at),
        *no_number_twice(books),
        *only_touched_lives_restart(books, lost_at=lost_at, quiet=quiet, restarts_max=restarts_max),
    ]
