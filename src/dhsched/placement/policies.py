"""The policies by name, all with one interface, so that the service and the simulator run the same code.

- emptiest: the store takes the Worker that is truly the emptiest, of those that the request prefers.
- bottom-tier: the bottom tier of the first Pools with a free slot; own deltas weighted by the measured share.
- bottom-tier-paper: the same with +1, as the paper has it.
- bottom-tier-replicas: the same with +R.
- exact: names Pools only; the store takes the emptiest Worker of `free:<pool>`.
- the others: the policies that the paper compares with; see `baselines`.
"""

from collections.abc import Sequence
from random import Random

from dhsched.placement import baselines
from dhsched.placement.index import WorkerView
from dhsched.placement.policy import Policy
from dhsched.placement.pools import CANDIDATES_LIMIT, RankedPool
from dhsched.placement.request import PlacementRequest
from dhsched.placement.view import FleetView, Weighing
from dhsched.placement.workers import draw, draw_full, draw_widely


def prefers(request: PlacementRequest) -> bool:
    """Return whether the request ranks some Workers of a Pool before others."""
    return bool(request.preferred_labels or request.avoid or request.last is not None or request.first is not None)


class Emptiest(Policy):
    """The emptiest Worker at the moment of the commit, which only the store knows: no view is fresh enough.

    If the request prefers some Workers to others, up to 16 are named, and the store compares those that it prefers
    alike. If not, a Pool with more Workers is left to the store's own index: that is as even, and looking up 16 loads
    makes a create cost the store a third more. A Pool with fewer is named, so that an explanation can list its Workers.
    """

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        first = prefers(request)
        chosen: list[WorkerView] = []
        for pool in pools:
            if not first and pool.with_free_slot > count - len(chosen):
                return chosen
            chosen += draw_widely(pool.view, pool.with_free_slot, count - len(chosen), request.preferred_labels, rng)
            if len(chosen) == count:
                return chosen
        if first or not chosen:
            for pool in pools:
                full = draw_full(pool.view, count - len(chosen), rng)
                chosen += sorted(full, key=lambda worker: -len(worker.labels & request.preferred_labels))
        return chosen


class BottomTier(Policy):
    """Sample the bottom tier of the first Pool; if it has too few Workers with a free slot, go on with the next."""

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        chosen: list[WorkerView] = []
        for pool in pools:
            chosen += draw(pool.view, count - len(chosen), request.preferred_labels, rng)
            if len(chosen) == count:
                return chosen
        for pool in pools:
            chosen += draw_full(pool.view, count - len(chosen), rng)
        return chosen


class Exact(Policy):
    """Names only Pools, no Workers. Replicas cannot herd; every placement pays for the search in the store."""

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        return []


_ALL: tuple[Policy, ...] = (
    Emptiest("emptiest", corrects=True, compares=True, candidates=CANDIDATES_LIMIT),
    BottomTier("bottom-tier", corrects=True),
    BottomTier("bottom-tier-paper", Weighing.ONE),
    BottomTier("bottom-tier-replicas", Weighing.REPLICAS, corrects=True),
    Exact("exact"),
    baselines.StrictMin("strict-min", Weighing.NONE),
    baselines.LeastLoad("least-load", Weighing.ONE),
    baselines.PowerOfTwo("power-of-two", Weighing.NONE),
    baselines.OrleansAC("orleans-ac", Weighing.ONE),
    baselines.OrleansACPriority("orleans-ac-priority", Weighing.ONE),
    baselines.OrleansACCode("orleans-ac-code", Weighing.SELECTION),
)
POLICIES: dict[str, Policy] = {policy.name: policy for policy in _ALL}
DEFAULT_POLICY = POLICIES["emptiest"]


def view_for(policy: Policy, *, replicas: int | None = None) -> FleetView:
    """Return an empty view that weighs own assignments as the policy requires."""
    return FleetView(weighing=policy.weighing, replicas=replicas)
