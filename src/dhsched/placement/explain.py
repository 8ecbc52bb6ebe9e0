"""Explains a placement as data (design, 5.7): nobody should have to guess why a live is where it is.

A choice records the few numbers it was made from; the explanation is made only on request. With a view, the Workers
that were no candidates are listed too, as the view has them now: compare `view_rev` with `rev` to see whether it is
still the view of the choice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from dhsched.placement.index import MILLI
from dhsched.placement.request import Choice, WorkerScore
from dhsched.placement.view import FleetView
from dhsched.placement.workers import bottom_tier

WORKERS_LISTED_MAX = 100  # Further Workers of a Pool are not listed by name; the counts cover all.


UNCHOSEN = {"named": "it was asked for by name", "reserved": "its place was set aside there before the live moved"}
"""The reason where no policy chose (`name_worker`)."""


class Refusal(msgspec.Struct, frozen=True):
    """A candidate that the store refused."""

    worker: str
    reason: str
    load: int | None = None


class Won(msgspec.Struct, frozen=True):
    """The store's answer when it placed the live: the Worker, and its true load, the live included."""

    worker: str
    load: int
    took_slot: bool = True  # False: the live came back into a slot that it already had.


class WorkerChosen(msgspec.Struct, frozen=True):
    """The Worker that got the live, and the reason."""

    worker: str
    pool: str | None  # Pool and capacity are None if the Worker was no candidate and the view does not know it.
    load_before: int  # Both are true loads, by the store.
    load_after: int
    capacity: int | None
    rank: int | None  # Among the candidates, from 1; None if the store found the Worker in a Pool.
    of: int  # Number of candidates.
    reason: str


class WorkerExplained(msgspec.Struct, frozen=True):
    """A candidate, in the order in which it was to be tried. `result` is chosen, refused, or how the candidate's load
    share, as it was believed, compares with that of the chosen Worker."""

    worker: str
    pool: str
    load: int  # As the snapshot had it.
    own: int  # Assignments of this replica that the snapshot did not contain.
    score: float  # What the candidate was ranked by, in slots: load + weighted own assignments.
    capacity: int
    starting: int
    notes: tuple[str, ...] = ()
    result: str = ""


class WorkerExcluded(msgspec.Struct, frozen=True):
    """A Worker of an eligible Pool that every choice ranks after all others."""

    worker: str
    reason: str


class PoolExplained(msgspec.Struct, frozen=True):
    """A Pool, in the order in which it was to be tried."""

    pool: str
    tier: int
    priority: int
    waterline: float
    workers: int
    with_free_slot: int
    bottom_tier: int | None = None  # Workers in the tier; like the excluded ones, only known with a view.
    excluded: tuple[WorkerExcluded, ...] = ()
    excluded_counts: dict[str, int] = {}


class Explanation(msgspec.Struct, frozen=True):
    """Why a live was placed where it was."""

    digital_id: str
    policy: str
    rev: int
    snapshot_age_s: float | None
    weight: float  # The weight of one own assignment, in slots.
    pools: tuple[PoolExplained, ...]
    pools_excluded: dict[str, str]
    candidates: tuple[WorkerExplained, ...]
    refusals: tuple[Refusal, ...] = ()
    view_rev: int | None = None
    chosen: WorkerChosen | None = None


def explain(
    choice: Choice, *, view: FleetView | None = None, refusals: Iterable[Refusal] = (), won: Won | None = None
) -> Explanation:
    """Return the explanation of a choice; `refusals` and `won` are what the store reported."""
    why, refused = choice.why, {each.worker: each for each in refusals}
    chosen = None if won is None else _explain_winner(choice, won, view, refused)
    return Explanation(
        digital_id=why.request.digital_id,
        policy=why.policy,
        rev=why.rev,
        snapshot_age_s=None if why.taken_at is None else why.now - why.taken_at,
        weight=why.weight_milli / MILLI,
        pools=tuple(
            _with_workers(
                PoolExplained(pool.pool, pool.tier, pool.priority, pool.waterline, pool.workers, pool.with_free_slot),
                view,
            )
            for pool in why.pools
        ),
        pools_excluded=dict(why.excluded),
        candidates=tuple(_explain_candidate(choice, score, chosen, refused) for score in why.scores),
        refusals=tuple(refused.values()),
        view_rev=None if view is None else view.rev,
        chosen=chosen,
    )


def _explain_winner(choice: Choice, won: Won, view: FleetView | None, refused: Mapping[str, Refusal]) -> WorkerChosen:
    """Return the Worker that won, with its numbers. The others' loads are only believed, so a winner that was not the
    lowest of them is explained by its rank alone: the store knew better, and does not return all it knows."""
    scores = choice.why.scores
    rank = next((at for at, score in enumerate(scores, 1) if score.worker == won.worker), None)
    seen = None if view is None else view.workers.get(won.worker)
    known = seen if rank is None else scores[rank - 1]
    pool = None if known is None else known.pool or None
    capacity = None if known is None else known.capacity or None
    before = won.load - won.took_slot
    candidates = f"{len(scores)} candidate{'' if len(scores) == 1 else 's'}"
    if choice.why.policy in UNCHOSEN:
        reason = UNCHOSEN[choice.why.policy]
    elif rank is None or capacity is None:
        where = f"Pool {pool}" if pool else "an eligible Pool"
        reason = f"none of {candidates} could take it; the store found a free slot in {where}"
    else:
        others = [_share(score) for score in scores if score.worker not in (won.worker, *refused)]
        alike = sum(share == before / capacity for share in others)
        if all(share >= before / capacity for share in others):
            reason = f"the lowest load share of {candidates}" if len(scores) > 1 else "the only candidate"
            reason += f"; {alike} other{' was' if alike == 1 else 's were'} as low" if alike else ""
        else:
            reason = f"number {rank} of {candidates} in the order of {choice.why.policy}"
        reason += f", {len(refused)} of which refused" if refused else ""
    return WorkerChosen(won.worker, pool, before, won.load, capacity, rank, len(scores), reason)


def _share(score: WorkerScore) -> float:
    return (score.load + score.own) / score.capacity if score.capacity else 1.0


def _result(score: WorkerScore, chosen: WorkerChosen | None, refused: Mapping[str, Refusal]) -> str:
    if refusal := refused.get(score.worker):
        at = "" if refusal.load is None else f" at {refusal.load}/{score.capacity}"
        return f"refused: {refusal.reason}{at}"
    if chosen is None:
        return ""
    if score.worker == chosen.worker:
        return "chosen"
    if not chosen.capacity:
        return "not chosen"
    share, least = _share(score), chosen.load_before / chosen.capacity
    how = "higher" if share > least else "same" if share == least else "lower"
    return f"{how} load share: {score.load + score.own}/{score.capacity}"


def _explain_candidate(
    choice: Choice, score: WorkerScore, chosen: WorkerChosen | None, refused: Mapping[str, Refusal]
) -> WorkerExplained:
    request = choice.why.request
    notes = {
        "asked to be first": score.worker == request.first,
        "avoided": score.worker in request.avoid,
        "asked to be last": score.worker == request.last,
        "believed full": score.load + score.own >= score.capacity,
    }
    return WorkerExplained(
        worker=score.worker,
        pool=score.pool,
        load=score.load,
        own=score.own,
        score=score.load + score.delta_milli / MILLI,
        capacity=score.capacity,
        starting=score.starting,
        notes=tuple(note for note, is_so in notes.items() if is_so),
        result=_result(score, chosen, refused),
    )


def _with_workers(pool: PoolExplained, view: FleetView | None) -> PoolExplained:
    """Add what only the view knows: the size of the tier, and the excluded Workers with their reasons."""
    if view is None:
        return pool
    reasons = {worker.worker: worker.barred for worker in view.workers.values() if worker.pool == pool.pool}
    seen = view.pools.get(pool.pool)
    members = [] if seen is None else seen.members
    reasons |= {worker.worker: "believed full" for worker in members if worker.believed_full()}
    excluded = [WorkerExcluded(worker, reason) for worker, reason in sorted(reasons.items()) if reason]
    return msgspec.structs.replace(
        pool,
        bottom_tier=bottom_tier(seen).size if seen is not None and seen.has_free_slot() else 0,
        excluded=tuple(excluded[:WORKERS_LISTED_MAX]),
        excluded_counts=dict(Counter(worker.reason for worker in excluded)),
    )
