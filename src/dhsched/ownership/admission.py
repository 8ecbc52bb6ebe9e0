"""Admission: decides by the true loads which Worker takes a live now, and why others do not.

docs/internals/protocol.md, place, 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dhsched.ownership.draft import Draft
from dhsched.ownership.outcomes import Full, Refusal, Refused, Starting, Waiting
from dhsched.ownership.state import Live
from dhsched.types import Candidates, Cause, Equals


@dataclass(frozen=True, slots=True)
class Admitted:
    """The Worker that takes the live, and the candidates that did not."""

    worker: str
    refusals: tuple[Refusal, ...]


def admit(
    s: Draft, live: str, record: Live | None, cause: Cause, candidates: Candidates, pools: Sequence[str]
) -> Admitted | Full | Starting | Waiting:
    """Return the first candidate that has a free slot, of equals the emptiest; else the emptiest of each named Pool in
    turn."""
    refusals: list[Refusal] = []
    reasons: set[Refused] = set()
    for candidate in candidates:
        winner, asked = None, candidate.workers if isinstance(candidate, Equals) else (candidate,)
        if isinstance(candidate, Equals) and not goes_after(s, cause, candidate.pool):
            free = s.free.get(candidate.pool, {})
            winner = emptiest({worker: free[worker] for worker in asked if worker in free}, reach(cause))
            if winner is not None:
                # Those without a free slot are told of as well, so that a view which believes in them learns.
                asked = tuple(worker for worker in asked if worker not in free)
        for worker in asked:
            reason = refuses(s, worker, record, cause)
            if reason is None and winner is None:
                return Admitted(worker, tuple(refusals))
            if reason is not None:
                reasons.add(reason)
                known = s.workers.get(worker)
                refusals.append(Refusal(worker, reason, known.load if known else 0, known.capacity if known else 0))
        if winner is not None:
            return Admitted(winner, tuple(refusals))
    for pool in pools:
        # Asked to leave, staying is not an answer; a live that lost its runtime may come back.
        left = None if record is None or cause == "recover" else record.selected
        ordered = sorted(s.free.get(pool, {}).items(), key=lambda entry: (entry[1] < 0, entry[1], entry[0]))
        free = {worker: score for worker, score in ordered if worker != left}
        if free and goes_after(s, cause, pool):
            reasons.add("WAITING")
        elif free:
            winner = emptiest(free, reach(cause))
            if winner is not None:
                return Admitted(winner, tuple(refusals))
            reasons.add("STARTING")
    kind = Starting if "STARTING" in reasons else Waiting if "WAITING" in reasons else Full
    return kind(tuple(refusals))


def goes_after(s: Draft, cause: Cause, pool: str) -> bool:
    """Return whether this is a create and lives wait for a free slot in the Pool: they go first."""
    return cause == "create" and bool(s.waiting.get(pool))


def reach(cause: Cause) -> int:
    """Return how many start budgets a Worker may have reached and still start this live: that of recoveries is never
    the higher one."""
    return 0 if cause == "recover" else 1


def emptiest(free: Mapping[str, float], reach: int) -> str | None:
    """Return, of these entries of free:<pool>, the first with the lowest share among those within reach."""
    low, high = -min(reach, 1), max(reach, 1)
    shares = {worker: score % 1 for worker, score in free.items() if low <= score < high}
    return min(shares, key=shares.__getitem__) if shares else None


def refuses(s: Draft, worker: str, record: Live | None, cause: Cause) -> Refused | None:
    """Return why the Worker cannot take the live, or None."""
    w = s.workers.get(worker)
    if w is None:
        return "UNKNOWN"
    if not w.placeable:
        return unplaceable(w.gone, w.lost, w.mode)
    if record is not None and (record.selected == worker or (record.move and record.move.target == worker)):
        return None  # It holds the live's slot, or its reservation: its slot is there already.
    if w.load >= w.capacity:
        return "FULL"
    if cause == "create" and s.waiting.get(w.pool):
        return "WAITING"
    budget = w.starts_recover_max if cause == "recover" else w.starts_create_max
    return "STARTING" if w.starting >= w.pace * budget else None


def paced(s: Draft, worker: str, took_ms: int) -> None:
    """Let the Worker's start budgets follow how long a start took: twice as high after a quick one, half after a slow
    one. Where more lives may start than before, some that wait are due."""
    w, limits = s.workers[worker], s.limits
    pace = w.pace
    if took_ms <= limits.start_quick_ms:
        pace = min(2 * pace, limits.pace_max)
    elif took_ms > limits.start_slow_ms:
        pace = max(1, pace // 2)
    if pace == w.pace:
        return
    s.set_worker(worker, pace=pace)
    s.write_free(worker)
    if w.placeable and pace > w.pace:
        s.wake_waiting(w.pool, min((pace - w.pace) * w.starts_recover_max, w.capacity - w.load, limits.walk_max))


def unplaceable(gone: bool, lost: bool, mode: str) -> Refused:
    if gone:
        return "GONE"
    if lost:
        return "LOST"
    if mode == "cordoned":
        return "CORDONED"
    return "DRAINING" if mode == "draining" else "NEW"


def next_number(s: Draft, issued: int) -> int:
    """Return a number that was never issued for this id, in this term or any before."""
    number = max(issued, s.cell.epoch_base, s.cell.epoch_floor) + 1
    raise_base(s, number)
    return number


def raise_base(s: Draft, number: int) -> None:
    """Keep every issued number within `term_step` of base and floor, so that the next term begins above all of them."""
    if number > max(s.cell.epoch_base, s.cell.epoch_floor) + s.limits.term_step:
        s.cell = replace(s.cell, epoch_base=number)
