"""The choice itself: view, request, policy and chance in, candidates and Pools out. Nothing else is read."""

from itertools import groupby
from random import Random
from typing import Literal

from dhsched.placement.index import WorkerView
from dhsched.placement.policies import DEFAULT_POLICY, POLICIES
from dhsched.placement.policy import Policy
from dhsched.placement.pools import ExcludedPool, RankedPool, order_pools
from dhsched.placement.request import Choice, NoEligiblePool, PlacementRequest, Why, WorkerScore
from dhsched.placement.view import FleetView, Weighing
from dhsched.types import Equals


def choose(
    view: FleetView, request: PlacementRequest, *, rng: Random, now: float, policy: Policy = DEFAULT_POLICY
) -> Choice | NoEligiblePool:
    """Return where a live should go, as this replica sees the fleet.

    The caller passes ranks and Pools to `place`, and reports the result to the view: `committed`, `correct`. The first
    Pool may have a policy of its own; own assignments are weighed as the view was made.
    """
    pools, excluded = order_pools(view.pools, request.pools, request.required_labels)
    if not pools:
        return _nobody(request, excluded)
    settings = pools[0].view.pool
    policy = POLICIES[settings.policy] if settings.policy else policy
    count = request.candidates_max or settings.candidates_max or policy.candidates
    if request.avoid or request.last is not None or request.first is not None:
        workers = _rank_in_asked_order(view, request, policy, pools, count, rng)
    else:
        workers = policy.rank(pools, count, request, rng)
    weight_milli = view.weight_milli()
    candidates = tuple([worker.worker for worker in workers])
    choice = Choice(
        candidates,
        _equals_together(workers, request) if policy.compares else candidates,
        tuple([pool.pool for pool in pools]),
        Why(
            request,
            policy.name,
            now,
            view.rev,
            view.taken_at,
            weight_milli,
            tuple(pools),
            tuple(excluded),
            _scores(workers),
        ),
    )
    if workers and view.weighing is Weighing.SELECTION:
        view.selected(workers[0].worker)  # For the one policy that counts the choice itself.
    return choice


def name_worker(
    view: FleetView, request: PlacementRequest, worker: str, *, now: float, how: Literal["named", "reserved"]
) -> Choice:
    """Return the choice of one Worker that was named, or that has reserved a slot. It has no Pools to fall back on."""
    seen = view.workers.get(worker)
    why = Why(request, how, now, view.rev, view.taken_at, view.weight_milli(), (), (), _scores([seen] if seen else []))
    return Choice((worker,), (worker,), (), why)


def unplaceable(view: FleetView, request: PlacementRequest) -> str:
    """Return why no Worker may take such a live, as configured, full or not; empty if some Worker may."""
    pools, excluded = order_pools(view.pools, request.pools, request.required_labels)
    return "" if pools else _nobody(request, excluded).reason


def _scores(workers: list[WorkerView]) -> tuple[WorkerScore, ...]:
    return tuple([WorkerScore(w.worker, w.pool, w.load, w.own, w.delta, w.capacity, w.starting) for w in workers])


def _nobody(request: PlacementRequest, excluded: list[ExcludedPool]) -> NoEligiblePool:
    reason = "; ".join(f"{pool} {reason}" for pool, reason in excluded) or "it lists no Pool"
    return NoEligiblePool(f"DigitalID {request.digital_id} has no eligible Pool: {reason}", tuple(excluded))


def _rank_in_asked_order(
    view: FleetView, request: PlacementRequest, policy: Policy, pools: list[RankedPool], count: int, rng: Random
) -> list[WorkerView]:
    """Over-sample by the number of Workers to avoid, then reorder: `first` leads, avoided Workers go last."""
    late = request.avoid if request.last is None else request.avoid | {request.last}
    ranked = policy.rank(pools, count + len(late) + 1, request, rng)
    first = view.workers.get(request.first) if request.first is not None else None
    if first is None or not any(first.home is pool.view for pool in pools):
        first = None
    others = [worker for worker in ranked if worker is not first]
    others.sort(key=lambda worker: (worker.worker in late) + (worker.worker == request.last))
    return ([first] if first is not None else []) + others[: count - (first is not None)]


def _equals_together(workers: list[WorkerView], request: PlacementRequest) -> tuple[str | Equals, ...]:
    """Group neighbours of one Pool that the request prefers alike: the store compares their true loads."""
    late, preferred = request.avoid, request.preferred_labels

    def standing(worker: WorkerView) -> tuple[str, bool, bool, bool, int]:
        name = worker.worker
        matches = len(preferred & worker.labels) if preferred else 0
        return worker.pool, name == request.first, name in late, name == request.last, matches

    ranks: list[str | Equals] = []
    for (pool, *_), equals in groupby(workers, standing):
        names = tuple([worker.worker for worker in equals])
        ranks.append(Equals(pool, names) if len(names) > 1 else names[0])
    return tuple(ranks)
