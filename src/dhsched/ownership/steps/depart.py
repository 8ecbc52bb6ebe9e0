"""depart: a slot has no runtime any more, and in this boot never will have one again."""

from __future__ import annotations

from dataclasses import replace

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.needs import backoff_ms
from dhsched.ownership.outcomes import Departed, DepartOutcome, Nothing
from dhsched.ownership.presence import vacate
from dhsched.ownership.state import State


def depart(
    state: State, now: int, limits: Limits, *, worker: str, live: str, number: int, reason: str = ""
) -> tuple[State, DepartOutcome]:
    """Record that the Worker does not run `live@number`, and in this boot never will again. `reason` is why."""
    s = Draft(state, now, limits)
    slot = s.slot(worker, live, number)
    if slot is None or slot == "vacant":
        return state, Nothing()
    if slot == "departing":
        s.write_slot(worker, live, number, None)
    elif slot == "reserved":
        s.clear_move(live, slot=False)
        s.write_slot(worker, live, number, None)
    else:
        vacate(s, worker, live, number)
        record = s.set_live(live, current=replace(s.lives[live].current, reason=reason))
        claimed_at = record.current.claimed_at
        if claimed_at and now - claimed_at >= limits.backoff_max_ms:
            record = s.set_live(live, starts=0)  # It lived for longer than it could be made to wait.
        # A runtime that dies before its first ack, again and again, is not placed again at once.
        wait = 0 if record.starts == 0 or record.move else backoff_ms(record.starts - 1, limits)
        s.look_at(live, now + wait)
    return s.done(), Departed(slot)
