"""cancel: give up a planned move and give its reserved slot back."""

from __future__ import annotations

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Cancelled, CancelOutcome, NoMove
from dhsched.ownership.state import State


def cancel(state: State, now: int, limits: Limits, *, live: str, number: int) -> tuple[State, CancelOutcome]:
    """Give up the move with this number, and no other."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None or record.move is None or record.move.number != number:
        return state, NoMove()
    s.clear_move(live)
    return s.done(), Cancelled()
