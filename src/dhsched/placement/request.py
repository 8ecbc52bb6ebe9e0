"""The requests and results of placement: plain values.

None of them can be part of a reference cycle, so `gc=False` keeps thousands of them a second out of the collector.
"""

import msgspec

from dhsched.placement.pools import CANDIDATES_LIMIT, DigitalID, ExcludedPool, RankedPool
from dhsched.types import Equals

NOTHING: frozenset[str] = frozenset()


class PlacementRequest(msgspec.Struct, frozen=True, gc=False):
    """A request for a Worker for a live of `digital_id`.

    `avoid`, `last` and `first` are orders, not filters: avoided Workers come after all others and `last` after those;
    `first` leads, also when it looks full, because the live may hold a slot there.
    """

    digital_id: str
    pools: tuple[tuple[str, int], ...]  # (Pool, tier); tier 0 is preferred.
    required_labels: frozenset[str] = NOTHING  # Labels that the Pool must have.
    preferred_labels: frozenset[str] = NOTHING  # Labels of Workers; they only rank.
    avoid: frozenset[str] = NOTHING
    last: str | None = None
    first: str | None = None
    candidates_max: int | None = None  # None: as the first Pool in the order sets it.

    def __post_init__(self) -> None:
        if len(self.pools) > 1 and len({pool for pool, _ in self.pools}) != len(self.pools):
            raise ValueError(f"request for DigitalID {self.digital_id} names a Pool twice: {self.pools}")
        if self.candidates_max is not None and not 1 <= self.candidates_max <= CANDIDATES_LIMIT:
            raise ValueError(f"candidates_max is {self.candidates_max}; choose 1 to {CANDIDATES_LIMIT}")


class WorkerScore(msgspec.Struct, frozen=True, gc=False):
    """The numbers that a candidate was ranked by, as they were."""

    worker: str
    pool: str
    load: int
    own: int
    delta_milli: int
    capacity: int
    starting: int


class Why(msgspec.Struct, frozen=True, gc=False):
    """The inputs of a choice, recorded as cheaply as possible; `explain` turns them into words and numbers."""

    request: PlacementRequest
    policy: str
    now: float
    rev: int
    taken_at: float | None
    weight_milli: int
    pools: tuple[RankedPool, ...]
    excluded: tuple[ExcludedPool, ...]
    scores: tuple[WorkerScore, ...]


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The candidates in order, then all eligible Pools in order, in which the store looks for a free slot itself.

    `ranks` are the candidates as the store gets them: equal ones together.
    """

    candidates: tuple[str, ...]
    ranks: tuple[str | Equals, ...]
    pools: tuple[str, ...]
    why: Why

    def without(self, *workers: str) -> list[str | Equals]:
        """Return the ranks without these Workers."""
        left: list[str | Equals] = []
        for rank in self.ranks:
            if isinstance(rank, Equals):
                others = tuple(each for each in rank.workers if each not in workers)
                left += [Equals(rank.pool, others)] if others else []
            elif rank not in workers:
                left.append(rank)
        return left


class NoEligiblePool(msgspec.Struct, frozen=True, gc=False):
    """No Pool may ever take this live. Only a change of the configuration helps; do not retry."""

    reason: str
    excluded: tuple[ExcludedPool, ...] = ()


def request_for(digital_id: DigitalID) -> PlacementRequest:
    """Return the request for a live of this DigitalID."""
    return PlacementRequest(
        digital_id=digital_id.name,
        pools=tuple((entry.pool, entry.tier) for entry in digital_id.pools),
        required_labels=digital_id.required_labels,
        preferred_labels=digital_id.preferred_labels,
    )
