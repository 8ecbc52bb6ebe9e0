"""The policies that the paper compares with (paper, 8.1), under the same views, requests and admission as our own.

None of them sets apart Workers that it believes full, unless its definition says so: that is part of the comparison.
"""

from collections.abc import Callable, Sequence
from heapq import nsmallest
from random import Random

from dhsched.placement.index import WorkerView
from dhsched.placement.policy import Policy
from dhsched.placement.pools import RankedPool
from dhsched.placement.request import PlacementRequest
from dhsched.placement.workers import member_at


class StrictMin(Policy):
    """The argmin of the snapshot in the chosen Pool, no delta; further attempts go to the next lowest Worker."""

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        chosen: list[WorkerView] = []
        for pool in _with_free_slot_first(pools):
            chosen += _lowest([pool], count - len(chosen))
            if len(chosen) == count:
                break
        return chosen


class LeastLoad(Policy):
    """Cached Least-Load: the argmin of load / capacity over all eligible Workers, whatever their Pool's priority."""

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        return _lowest(pools, count)


class PowerOfTwo(Policy):
    """The emptier of two random Workers of the chosen Pool, by the snapshot alone."""

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        chosen: list[WorkerView] = []
        for pool in _with_free_slot_first(pools):
            _add_pairs(chosen, [pool], count, _share, rng)
        return chosen


class OrleansAC(Policy):
    """ActivationCount placement as the paper words it.

    "Each Dispatch replica ranks a random pair using the latest cached activation count plus its own successful
    placements since that snapshot." Any eligible Worker may be in a pair, and counts are not divided by capacity.
    """

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        return _add_pairs([], pools, count, WorkerView.effective_milli, rng)


class OrleansACPriority(Policy):
    """OrleansAC within the Pools of the best tier and priority; the last attempt is for any eligible Worker."""

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        best = [pool for pool in pools if (pool.tier, pool.priority) == (pools[0].tier, pools[0].priority)]
        chosen = _add_pairs([], best, max(1, count - 1), WorkerView.effective_milli, rng)
        return _add_pairs(chosen, pools, count, WorkerView.effective_milli, rng)


class OrleansACCode(Policy):
    """ActivationCount placement as the Orleans runtime has it.

    Silos that report overload are left out (here: Workers believed full), two of the rest are drawn, and the count
    of the chosen one rises at once by the number of placers, whether the activation succeeds or not. News of a silo
    wipes its count out; every silo sends its news at its own time, which is the `workers` schedule of the simulator.
    """

    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        return _add_pairs([], pools, count, _count_if_free, rng)


def _with_free_slot_first(pools: Sequence[RankedPool]) -> list[RankedPool]:
    """Return the Pools with any free slot first; otherwise the order stays."""
    return sorted(pools, key=lambda pool: pool.with_free_slot == 0)


def _share(worker: WorkerView) -> float:
    return worker.effective_milli() / worker.capacity if worker.capacity else float("inf")


def _count_if_free(worker: WorkerView) -> float:
    return float("inf") if worker.believed_full() else worker.effective_milli()


def _lowest(pools: Sequence[RankedPool], count: int) -> list[WorkerView]:
    """Return the `count` lowest Workers by share of capacity, ties by name.

    Buckets are in order of share within a Pool, so the buckets of a Pool's lowest `count` Workers are enough.
    """
    near: list[WorkerView] = []
    for pool in pools:
        found = 0
        for key in pool.view.keys:
            near += pool.view.buckets[key]
            found += len(pool.view.buckets[key])
            if found >= count:
                break
    return nsmallest(count, near, key=lambda worker: (_share(worker), worker.worker))


def _add_pairs(
    chosen: list[WorkerView],
    pools: Sequence[RankedPool],
    count: int,
    cost: Callable[[WorkerView], float],
    rng: Random,
) -> list[WorkerView]:
    """For each attempt add to `chosen`, up to `count`, the cheaper Worker of a random pair of those not chosen yet."""
    rosters = [pool.view.members for pool in pools]
    if (total := sum(len(roster) for roster in rosters)) <= 4 * count:
        left = [worker for roster in rosters for worker in roster if worker not in chosen]
        while left and len(chosen) < count:
            chosen.append(min(rng.sample(left, min(2, len(left))), key=cost))
            left.remove(chosen[-1])
        return chosen
    while len(chosen) < count:
        one = _pick(rosters, total, rng)
        other = _pick(rosters, total, rng)
        if one is not other and one not in chosen and other not in chosen:
            chosen.append(other if cost(other) < cost(one) else one)
    return chosen


def _pick(rosters: list[list[WorkerView]], total: int, rng: Random) -> WorkerView:
    return member_at(rosters, int(rng.random() * total))
