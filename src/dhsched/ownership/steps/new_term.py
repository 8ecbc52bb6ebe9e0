"""new_term: make every number that was issued before void. Only an operator begins a term."""

from __future__ import annotations

from dataclasses import replace

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Moot, NewTerm, NewTermOutcome
from dhsched.ownership.state import State


def new_term(state: State, now: int, limits: Limits, *, term: int) -> tuple[State, NewTermOutcome]:
    """Begin the term after `term`: put every generation that was ever issued below a floor, so that each live is placed
    anew."""
    s = Draft(state, now, limits)
    if s.cell.term != term:
        return state, Moot()
    floor = max(term * limits.term_step, max(s.cell.epoch_floor, s.cell.epoch_base) + limits.term_step)
    s.cell = replace(s.cell, term=term + 1, epoch_floor=floor, rev=s.cell.rev + limits.term_step)
    return s.done(), NewTerm(term + 1, floor)
