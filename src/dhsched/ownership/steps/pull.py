"""pull: the selected Worker claims its generation, or comes back to it (paper, algorithm 2)."""

from __future__ import annotations

from dataclasses import replace

from dhsched.ownership import items
from dhsched.ownership.admission import paced
from dhsched.ownership.draft import Draft
from dhsched.ownership.fence import fits, forgotten, guard, is_boundary
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Pulling, PullOutcome, Stale
from dhsched.ownership.state import State

PACES = ("create", "recover")
"""Causes whose claim ends a start: a planned move is claimed by a runtime that was prepared before."""


def pull(
    state: State,
    now: int,
    limits: Limits,
    *,
    live: str,
    worker: str,
    epoch: int,
    after: int,
    controller: str,
    mark: bytes = items.UNMARKED,
    journal: bool = False,
) -> tuple[State, PullOutcome]:
    """Let the selected Worker claim its generation, or come back to it (paper, algorithm 2)."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    refused = guard(s, record, worker, epoch)
    if record is None or refused is not None:
        return state, refused or Stale(None)
    slot = s.slot(worker, live, epoch)
    if slot not in ("starting", "running"):
        return state, Stale(record.generation, record.pull_no)
    if not fits(record, after, mark):
        return forgotten(s, live)
    if record.active is None:
        s.write_slot(worker, live, epoch, "running")
        current = replace(record.current, claimed_at=now)
        s.set_live(live, active=worker, note=None, stalled=None, current=current)
        s.leave_waiting(live)  # It was given up too early: it goes on where it is.
        if record.current.cause in PACES:
            paced(s, worker, now - record.current.committed_at)
    # No cursor goes back. Lowering `released` to what this pull names would let a late one hide what the runtime has
    # from a planned move, which then repeats it.
    goes_on = max(record.acked, after)
    if goes_on > record.released:
        # The mark fits, so the runtime has the item: it is the release that the store has forgotten.
        s.set_live(live, released=goes_on, at_boundary=is_boundary(record, goes_on))
    record = s.set_live(live, pull_no=max(record.pull_no, s.cell.pull_base) + 1, controller=controller)
    return s.done(), Pulling(
        record.pull_no,
        goes_on,
        record.digital_id,
        record.room,
        record.metadata,
        record.config,
        record.saved,
        record.journal.last,
        record.journal.entries if journal else None,
    )
