"""expire_worker: mark a Worker as lost whose beat has not moved. Placement stops there, and its lives are due."""

from __future__ import annotations

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Alive, Expired, ExpireOutcome, Nothing
from dhsched.ownership.state import State
from dhsched.types import OWNED


def expire_worker(state: State, now: int, limits: Limits, *, worker: str, beat: int) -> tuple[State, ExpireOutcome]:
    """Mark a Worker as lost that has not reported since `beat`. Its lives go on the agenda; its slots stay."""
    s = Draft(state, now, limits)
    record = s.workers.get(worker)
    if record is None or record.gone or record.lost:
        return state, Nothing()
    if record.beat != beat:
        return state, Alive(record.beat)
    s.clear_moves_to(worker)
    s.set_worker(worker, lost=True, lost_at=now)
    s.touch(worker)
    s.write_free(worker)
    lives = [live for live, _, slot in s.table(worker) if slot in OWNED]
    for live in lives:
        s.look_by(live, now)
    return s.done(), Expired(len(lives))
