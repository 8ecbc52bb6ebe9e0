"""The fence (paper, equation 3): who may pull, get input and ack; and whether both sides have the same history.

`guard` lets a release or an ack pass only for the generation that is current, claimed, above the floor and, for a
release, for its latest pull. An old runtime may live on; it gets nothing. Behind it, `fits` compares histories: a
runtime that has items which the store has not, or has otherwise, gets nothing either.
"""

from __future__ import annotations

from dhsched.ownership import items
from dhsched.ownership.draft import Draft
from dhsched.ownership.outcomes import Ended, Stale
from dhsched.ownership.state import Live, State


def guard(s: Draft, record: Live | None, worker: str, epoch: int) -> Stale | Ended | None:
    """Return the refusal (paper, equation 3), before `active` and the pull are checked; None lets the caller pass."""
    if record is None:
        return Stale(None)
    if record.state == "ended":
        return Ended()
    if record.selected != worker or record.epoch != epoch or epoch <= s.cell.epoch_floor:
        return Stale(record.generation, record.pull_no)
    return None


def fits(record: Live, n: int, mark: bytes) -> bool:
    """Return whether item n, as the caller has it, is of this store's history. Below `acked` nothing is known."""
    if n == 0 or n < record.acked:
        return True
    if n == record.acked:
        return mark == record.acked_mark
    return n <= record.appended and mark == items.mark_of(record.pending[n - record.acked - 1])


def forgotten(s: Draft, live: str) -> tuple[State, Stale]:
    """Refuse a runtime that has items which the store has forgotten: it must stop, and its end blames no item."""
    s.set_live(live, forgot=True)
    return s.done(), Stale(None)


def is_boundary(record: Live, seq: int) -> bool:
    """Return whether a sentence ends here, or an interrupt stands here, or a closing live has nothing after it."""
    closes = record.state == "closing" and seq == record.appended
    return closes or record.pending[seq - record.acked - 1][0] in items.BOUNDARIES
