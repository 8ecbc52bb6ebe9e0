"""new_term: after lost history, make every number that was issued before void."""

from __future__ import annotations

from dataclasses import replace

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Moot, NewTerm, NewTermOutcome
from dhsched.ownership.state import State


def new_term(state: State, now: int, limits: Limits, *, term: int, seen_term: int) -> tuple[State, NewTermOutcome]:
    """Begin a term after lost history: put every generation that the store, or its lost past, may have issued below a
    floor.

    The floor follows from the term, so that a store that forgot a whole term cannot arrive at the same floor again.
    """
    s = Draft(state, now, limits)
    if s.cell.term != term:
        return state, Moot()
    new = max(term, seen_term) + 1
    floor = max((new - 1) * limits.term_step, max(s.cell.epoch_floor, s.cell.epoch_base) + limits.term_step)
    s.cell = replace(s.cell, term=new, epoch_floor=floor, rev=s.cell.rev + limits.term_step)
    return s.done(), NewTerm(new, floor)
