"""reserve: set a slot aside on another Worker before a planned move."""

from __future__ import annotations

from dhsched.ownership.admission import emptiest, next_number, unplaceable
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Busy, Ended, Full, NotFound, Refusal, Refused, Reserved, ReserveOutcome, Stale
from dhsched.ownership.state import Live, Move, State
from dhsched.types import Candidates, Equals


def reserve(
    state: State, now: int, limits: Limits, *, live: str, expected: int, candidates: Candidates
) -> tuple[State, ReserveOutcome]:
    """Reserve a slot for a planned move, with the number that its generation will have."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None:
        return state, NotFound()
    if record.state == "ended":
        return state, Ended()
    if record.epoch != expected:
        return state, Stale(record.generation)
    if record.move is not None:
        return state, Reserved(record.move.target, record.move.number, again=True)
    source = s.workers[record.selected]
    if source.cutovers >= source.pace * source.cutovers_max:
        return state, Busy(source.cutovers)
    refusals: list[Refusal] = []
    for worker in emptiest_first(s, record, candidates):
        w = s.workers.get(worker)
        reason: Refused | None = None
        if w is None:
            reason = "UNKNOWN"
        elif not w.placeable:
            reason = unplaceable(w.gone, w.lost, w.mode)
        elif worker == record.selected or w.load >= w.capacity:
            reason = "FULL"
        if reason is None:
            number = next_number(s, record.issued)
            s.write_slot(worker, live, number, "reserved")
            s.set_live(live, issued=number)
            s.set_move(live, Move(worker, number, now + limits.move_expires_ms))
            s.look_by(live, now + limits.move_expires_ms)
            return s.done(), Reserved(worker, number, again=False)
        refusals.append(Refusal(worker, reason, w.load if w else 0, w.capacity if w else 0))
    return state, Full(tuple(refusals))


def emptiest_first(s: Draft, record: Live, candidates: Candidates) -> list[str]:
    """Return the candidates one by one: the emptiest of equals that has a free slot stands before the others."""
    ordered: list[str] = []
    for candidate in candidates:
        if isinstance(candidate, Equals):
            free = s.free.get(candidate.pool, {})
            # A reservation starts nothing, so budgets do not matter.
            best = emptiest({w: free[w] for w in candidate.workers if w in free and w != record.selected}, reach=2)
            ordered += [best] if best is not None else []
            ordered += [worker for worker in candidate.workers if worker != best]
        else:
            ordered.append(candidate)
    return ordered
