"""hold: stop a live's input at the boundary where it stands, or at the next one."""

from __future__ import annotations

from dataclasses import replace

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Held, HoldOutcome, NoMove
from dhsched.ownership.state import Live, State


def hold(state: State, now: int, limits: Limits, *, live: str, number: int) -> tuple[State, HoldOutcome]:
    """Stop input at its current boundary, or at the next one."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None or record.move is None or record.move.number != number:
        return state, NoMove()
    at = record.move.hold
    if not isinstance(at, int):
        at = record.released if rests(record) else "next"
        s.set_live(live, move=replace(record.move, hold=at))
    return s.done(), Held(at)


def rests(record: Live) -> bool:
    """Return whether input may stop right here: no sentence is half sent, and the next item is no interrupt."""
    unreleased = record.pending[record.released - record.acked :]
    interrupted = bool(unreleased) and unreleased[0][:1] in (b"I", b"J")
    return (record.at_boundary and not interrupted) or record.acked == record.appended
