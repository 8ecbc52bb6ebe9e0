"""Pools and DigitalIDs as configured, and the order in which Pools are tried (paper, 5.3).

Eligibility comes first: a DigitalID lists its Pools, and the labels a request requires are labels of Pools. Then
tier (0 preferred), then the Pool's priority (0 first), then the lower waterline. Every eligible Pool stays in the
order, also one that looks full or empty of Workers: the store walks the list, so FULL means full.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dhsched.placement.index import PoolView

CANDIDATES_LIMIT = 16  # `place` refuses more candidates than this.
CANDIDATES_FEW = 3  # Candidates of a policy whose first candidate with a free slot wins: the paper's attempts.


@dataclass(frozen=True, slots=True)
class Pool:
    """A set of Workers that serve the same way, and how lives are spread over them."""

    name: str
    priority: int = 0  # 0 is tried first among the Pools of one tier.
    gpu_class: str = ""
    region: str = ""
    labels: frozenset[str] = frozenset()
    tier_workers_min: int = 8  # The bottom tier k(P) is max(tier_workers_min, N / tier_divisor) ...
    tier_divisor: int = 8
    tau_slots: int = 8  # ... and reaches at most this far above the emptiest Worker.
    candidates_max: int | None = None  # None: as the policy sets it.
    policy: str = ""  # For lives that try this Pool first; empty: the replica's policy.

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a Pool needs a name")
        if self.priority < 0 or self.tau_slots < 0 or self.tier_workers_min < 1 or self.tier_divisor < 1:
            raise ValueError(
                f"Pool {self.name}: priority {self.priority} and tau_slots {self.tau_slots} must be at least 0, "
                f"tier_workers_min {self.tier_workers_min} and tier_divisor {self.tier_divisor} at least 1"
            )
        if self.candidates_max is not None and not 1 <= self.candidates_max <= CANDIDATES_LIMIT:
            raise ValueError(
                f"Pool {self.name}: candidates_max is {self.candidates_max}; choose 1 to {CANDIDATES_LIMIT}"
            )

    def offers(self) -> frozenset[str]:
        """Return the labels that a request may require: the Pool's own, and its GPU class and region as `key=value`."""
        named = (("gpu_class", self.gpu_class), ("region", self.region))
        return self.labels | {f"{key}={value}" for key, value in named if value}


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """One Pool that may serve a DigitalID; tier 0 is preferred."""

    pool: str
    tier: int = 0


@dataclass(frozen=True, slots=True)
class DigitalID:
    """The avatar, voice or scene that a live shows, and the Pools that can run it."""

    name: str
    pools: tuple[PoolEntry, ...]
    required_labels: frozenset[str] = frozenset()
    preferred_labels: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names = [entry.pool for entry in self.pools]
        if len(set(names)) != len(names):
            raise ValueError(f"DigitalID {self.name} lists a Pool twice: {', '.join(names)}")
        if any(entry.tier < 0 for entry in self.pools):
            raise ValueError(f"DigitalID {self.name}: tiers start at 0, the preferred one")


class RankedPool(NamedTuple):
    """A Pool at its position in the order, with the numbers as they were when the order was made.

    The first four fields are the order itself. Names differ, so no comparison ever reaches the later fields.
    """

    tier: int
    priority: int
    waterline: float
    pool: str
    workers: int  # Placeable Workers,
    with_free_slot: int  # and those of them believed to have a free slot.
    view: PoolView


class ExcludedPool(NamedTuple):
    """A Pool that the request named but may not use."""

    pool: str
    reason: str


def order_pools(
    views: Mapping[str, PoolView], entries: Iterable[tuple[str, int]], required_labels: frozenset[str]
) -> tuple[list[RankedPool], list[ExcludedPool]]:
    """Return the eligible Pools in the order in which they are tried, and the others with the reason.

    A Pool that this replica does not know is eligible, with default settings: the view may be behind, and an error that
    says "never" instead of "not yet" could not be retried.
    """
    ranked: list[RankedPool] = []
    excluded: list[ExcludedPool] = []
    for name, tier in entries:
        view = views.get(name) or PoolView(Pool(name))
        if not required_labels <= view.offers:
            missing = ", ".join(sorted(required_labels - view.offers))
            excluded.append(ExcludedPool(name, f"lacks required labels: {missing}"))
            continue
        workers = len(view.members)
        ranked.append(
            RankedPool(tier, view.pool.priority, view.waterline(), name, workers, workers - view.full_count(), view)
        )
    if len(ranked) > 1:
        ranked.sort()
    return ranked, excluded
