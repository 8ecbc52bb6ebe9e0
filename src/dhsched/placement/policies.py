"""The policies by name, all with one interface, so that the service and the simulator run the same code.

- bottom-tier: the bottom tier of the first Pools with room; own deltas weighted by the measured share.
- bottom-tier-paper: the same with +1, as the paper has it.
- bottom-tier-replicas: the same with +R.
- exact: names Pools only; the store takes the emptiest Worker of `room:<pool>`.
- the others: what the paper compares with; see `baselines`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from dhsched.placement import baselines
from dhsched.placement.index import WorkerView
from dhsched.placement.pools import RankedPool
from dhsched.placement.request import PlacementRequest
from dhsched.placement.view import FleetView, Weighing
from dhsched.placement.workers import draw, draw_full


class Policy(Protocol):
    """How candidates are found. The view must be made with the policy's weighing: see `view_for`."""

    @property
    def name(self) -> str: ...

    @property
    def weighing(self) -> Weighing:
        """What own assignments add to the view."""

    @property
    def corrects(self) -> bool:
        """Whether refusals that carry the true load correct the view; the paper's policies do without."""

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        """Up to `count` distinct placeable Workers of these Pools, best first."""


@dataclass(frozen=True, slots=True)
class BottomTier:
    """Sample the bottom tier of the first Pool; where it has too few Workers with room, go on with the next."""

    name: str = "bottom-tier"
    weighing: Weighing = Weighing.SHARE
    corrects: bool = True

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        chosen: list[WorkerView] = []
        for pool in pools:
            chosen += draw(pool.view, count - len(chosen), request.preferred_labels, rng)
            if len(chosen) == count:
                return chosen
        for pool in pools:
            chosen += draw_full(pool.view, count - len(chosen), rng)
        return chosen


@dataclass(frozen=True, slots=True)
class Exact:
    """No view of Workers at all, only of Pools. Nothing herds; every placement pays for the search in the store."""

    name: str = "exact"
    weighing: Weighing = Weighing.SHARE
    corrects: bool = False

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        return []


_ALL: tuple[Policy, ...] = (
    BottomTier(),
    BottomTier("bottom-tier-paper", Weighing.ONE, corrects=False),
    BottomTier("bottom-tier-replicas", Weighing.REPLICAS),
    Exact(),
    baselines.StrictMin(),
    baselines.LeastLoad(),
    baselines.PowerOfTwo(),
    baselines.OrleansAC(),
    baselines.OrleansACPriority(),
    baselines.OrleansACCode(),
)
POLICIES: dict[str, Policy] = {policy.name: policy for policy in _ALL}
DEFAULT_POLICY = POLICIES["bottom-tier"]


def view_for(policy: Policy, *, replicas: int | None = None) -> FleetView:
    """An empty view that weighs own assignments as the policy wants them."""
    return FleetView(weighing=policy.weighing, replicas=replicas)
