"""Every placement explains itself, as data (design, 5.7): nobody should have to guess why a live is where it is.

A choice records the few numbers it was made from; only who asks pays for the explanation. With the view at hand the
Workers that were no candidates are listed too, as the view has them now: `view_rev` tells whether that is still the
view the choice was made from.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from dhsched.placement.index import MILLI, PoolView
from dhsched.placement.request import Choice, WorkerScore
from dhsched.placement.view import FleetView
from dhsched.placement.workers import bottom_tier

WORKERS_LISTED_MAX = 100  # Workers listed by name for one Pool; the counts cover all.


class Refusal(msgspec.Struct, frozen=True):
    """A candidate that the store turned down."""

    worker: str
    why: str
    load: int | None = None


class WorkerExplained(msgspec.Struct, frozen=True):
    """A candidate, in the order in which it was to be tried."""

    worker: str
    pool: str
    load: int  # As the snapshot had it,
    own: int  # assignments of this replica that the snapshot did not contain,
    score: float  # and what it was ranked by, in slots: load + weighted own assignments.
    capacity: int
    starting: int
    notes: tuple[str, ...] = ()


class WorkerExcluded(msgspec.Struct, frozen=True):
    """A Worker of an eligible Pool that no choice would name before all others."""

    worker: str
    why: str


class PoolExplained(msgspec.Struct, frozen=True):
    """A Pool, in the order in which it was to be tried."""

    pool: str
    tier: int
    priority: int
    waterline: float
    workers: int
    with_room: int
    bottom_tier: int | None = None  # Workers in the tier, and the excluded ones: only with the view at hand.
    excluded: tuple[WorkerExcluded, ...] = ()
    excluded_counts: dict[str, int] = {}


class Explanation(msgspec.Struct, frozen=True):
    """Why a live was sent where it was sent."""

    digital_id: str
    policy: str
    rev: int
    snapshot_age_s: float | None
    weight: float  # What one own assignment counted for, in slots.
    pools: tuple[PoolExplained, ...]
    pools_excluded: dict[str, str]
    candidates: tuple[WorkerExplained, ...]
    refusals: tuple[Refusal, ...] = ()
    view_rev: int | None = None


def explain(choice: Choice, *, view: FleetView | None = None, refusals: Iterable[Refusal] = ()) -> Explanation:
    """Turn what a choice recorded into an explanation; `refusals` are those that the store reported."""
    why = choice.why
    return Explanation(
        digital_id=why.request.digital_id,
        policy=why.policy,
        rev=why.rev,
        snapshot_age_s=None if why.taken_at is None else why.now - why.taken_at,
        weight=why.weight_milli / MILLI,
        pools=tuple(
            _with_workers(
                PoolExplained(pool.pool, pool.tier, pool.priority, pool.waterline, pool.workers, pool.with_room), view
            )
            for pool in why.pools
        ),
        pools_excluded=dict(why.excluded),
        candidates=tuple(_explain_candidate(choice, score) for score in why.scores),
        refusals=tuple(refusals),
        view_rev=None if view is None else view.rev,
    )


def _explain_candidate(choice: Choice, score: WorkerScore) -> WorkerExplained:
    request = choice.why.request
    notes = []
    if score.worker == request.first:
        notes.append("asked to be first")
    if score.worker in request.avoid:
        notes.append("avoided")
    if score.worker == request.last:
        notes.append("asked to be last")
    if score.load + score.own >= score.capacity:
        notes.append("believed full")
    return WorkerExplained(
        worker=score.worker,
        pool=score.pool,
        load=score.load,
        own=score.own,
        score=score.load + score.delta_milli / MILLI,
        capacity=score.capacity,
        starting=score.starting,
        notes=tuple(notes),
    )


def _with_workers(pool: PoolExplained, view: FleetView | None) -> PoolExplained:
    """Add what only the view knows: the size of the tier, and who is excluded and why."""
    if view is None:
        return pool
    reasons = {worker.worker: worker.barred for worker in view.workers.values() if worker.pool == pool.pool}
    for worker in _full_workers(view.pools.get(pool.pool)):
        reasons[worker] = "believed full"
    excluded = [WorkerExcluded(worker, why) for worker, why in sorted(reasons.items()) if why]
    seen = view.pools.get(pool.pool)
    return msgspec.structs.replace(
        pool,
        bottom_tier=bottom_tier(seen).size if seen is not None and seen.has_room() else 0,
        excluded=tuple(excluded[:WORKERS_LISTED_MAX]),
        excluded_counts=dict(Counter(worker.why for worker in excluded)),
    )


def _full_workers(pool: PoolView | None) -> list[str]:
    return [] if pool is None else [worker.worker for worker in pool.members if worker.believed_full()]
