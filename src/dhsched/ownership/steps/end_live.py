"""end_live: end a live now, or once its pending input is consumed."""

from __future__ import annotations

from dhsched.ownership.draft import Draft
from dhsched.ownership.finish import finish
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import EndOutcome, Finished, NotFound
from dhsched.ownership.state import State


def end_live(
    state: State, now: int, limits: Limits, *, live: str, after_pending: bool = False
) -> tuple[State, EndOutcome]:
    """End the live now, or once its pending input has been acked."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None:
        return state, NotFound()
    if record.state == "ended":
        return state, Finished("ended")
    if after_pending and record.acked < record.appended:
        s.set_live(live, state="closing")
    else:
        finish(s, live)
        s.wake_controller(live)
    return s.done(), Finished(s.lives[live].state)
