"""release_input: release the next items to the pull, behind the fence."""

from __future__ import annotations

from dataclasses import replace

from dhsched.ownership import items
from dhsched.ownership.draft import Draft
from dhsched.ownership.fence import fits, forgotten, guard, is_boundary
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Items, Nothing, ReleaseOutcome, Stale
from dhsched.ownership.state import State


def release_input(
    state: State,
    now: int,
    limits: Limits,
    *,
    live: str,
    worker: str,
    epoch: int,
    pull_no: int,
    after: int,
    credit: int,
    mark: bytes = items.UNMARKED,
) -> tuple[State, ReleaseOutcome]:
    """Release the items after `after` to the pull: never more than the credit unacked, never past a hold."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    refused = guard(s, record, worker, epoch)
    if record is None or refused is not None:
        return state, refused or Stale(None)
    if record.active != worker or record.pull_no != pull_no:
        return state, Stale(record.generation, record.pull_no)
    if not fits(record, after, mark):
        return forgotten(s, live)
    if record.suspect is not None and record.suspect[0] == record.acked + 1:
        credit = min(credit, 1)
    first = max(min(after, record.released), record.acked) + 1
    window = record.acked + credit
    last = min(record.appended, window)
    hold = record.move.hold if record.move else None
    if isinstance(hold, int):
        last = min(last, hold)
    elif hold == "next":
        last = next((i for i in range(record.released + 1, last + 1) if is_boundary(record, i)), last)
    if last < first:
        return state, Nothing()
    if last > record.released:
        at_boundary = is_boundary(record, last)
        s.set_live(live, released=last, at_boundary=at_boundary)
        if hold == "next" and at_boundary and record.move is not None:
            s.set_live(live, move=replace(record.move, hold=last))
    released = record.pending[first - record.acked - 1 : last - record.acked]
    return s.done(), Items(first, released, more=last == window < record.appended)
