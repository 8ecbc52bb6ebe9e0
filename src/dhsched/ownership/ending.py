"""The end of a live, from whichever step brings it: end_live, the last ack of a closing live, its last item dropped."""

from __future__ import annotations

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import EndOutcome, Finished, NotFound
from dhsched.ownership.state import State, frozen


def end_live(
    state: State, now: int, limits: Limits, *, live: str, after_pending: bool = False
) -> tuple[State, EndOutcome]:
    """End the live now, or once what is pending has been acked."""
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
    return s.done(), Finished(s.lives[live].state)


def finish(s: Draft, live: str) -> None:
    """Everything the live holds is given back; what is left of its input is dropped, and counted."""
    s.clear_move(live)
    record = s.lives[live]
    slot = s.slot(record.selected, live, record.epoch)
    s.write_slot(record.selected, live, record.epoch, None if slot == "vacant" else "departing")
    s.leave_waiting(live)
    s.set_live(
        live,
        state="ended",
        ended_at=s.now,
        active=None,
        dropped_end=record.dropped_end + record.appended - record.acked,
        released=record.appended,
        acked=record.appended,
        acked_mark=b"",
        pending=(),
        note=None,
        stalled=None,
        suspect=None,
        producers=frozen({}),
        recent=frozen({}),
    )
    s.look_at(live, s.now + s.limits.ended_ttl_ms)
