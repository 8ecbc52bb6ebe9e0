"""look: decide from the record, and from time, what a live needs now. It is the one step that time drives.

Deadlines, leases, backoff, expiries and sweeps are one mechanism: an agenda entry says when to look, and every look
raises it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import overload

from dhsched.ownership.draft import Draft
from dhsched.ownership.finish import finish
from dhsched.ownership.lifetime import lifetime_look_at, lifetime_over
from dhsched.ownership.limits import Limits
from dhsched.ownership.needs import backoff_ms, needs, watched
from dhsched.ownership.outcomes import Idle, Later, LifetimeOver, LookOutcome, Need, Nothing, Recover, Swept, Wake
from dhsched.ownership.state import Live, State
from dhsched.types import LifetimeReason


def look(state: State, now: int, limits: Limits, *, live: str) -> tuple[State, LookOutcome]:
    """Look at a live that is due. The first rule that matches decides."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None:
        return state, Nothing()
    at = s.agenda.get(record.priority, {}).get(live)
    if at is None and needs(s, live) is None:
        return state, Nothing()  # Without an entry only a new term makes a live need anything.
    # A new term does not wait for the time that an old one set; only for a lease on the recovery itself.
    fenced = record.tries == 0 and needs(s, live) == "floor"
    if at is not None and at > now and not fenced:
        return state, Later(at)
    if record.state == "ended":
        return look_ended(s, live)
    if record.seen[0] != record.appended:
        record = s.set_live(live, seen=(record.appended, now))
    reason = lifetime_over(record, now)
    if reason is not None:
        return end_lifetime(s, live, reason)
    if record.move is not None and now >= record.move.expires:
        s.clear_move(live)
    need = needs(s, live)
    if need is not None:
        return recover(s, live, need)
    s.leave_waiting(live)
    s.set_live(live, tries=0)
    return look_for_stall(s, live)


def look_ended(s: Draft, live: str) -> tuple[State, LookOutcome]:
    record = s.lives[live]
    sweep_at = record.ended_at + s.limits.ended_ttl_ms
    if s.now < sweep_at:
        s.look_at(live, sweep_at)
        return s.done(), Later(sweep_at)
    # The numbers of this id are not issued again: not even if the id is created anew.
    s.cell = replace(s.cell, epoch_base=max(s.cell.epoch_base, record.issued))
    s.look_never(live)
    del s.lives[live]
    s.listed -= {live}
    s.ended -= {live}
    return s.done(), Swept()


def end_lifetime(s: Draft, live: str, reason: LifetimeReason) -> tuple[State, LookOutcome]:
    """End the live as `end after pending` does: input that waits is still consumed. A look that follows goes on."""
    record = s.set_live(live, expired=reason)
    if record.acked < record.appended:
        s.set_live(live, state="closing")
        s.look_at(live, s.now)
    else:
        finish(s, live)
        s.wake_controller(live)
    return s.done(), LifetimeOver(reason, s.lives[live].state)


def look_for_stall(s: Draft, live: str) -> tuple[State, LookOutcome]:
    """Look for a stall. The first look at a standstill only wakes; a second, a full period later, recovers."""
    record = s.lives[live]
    period = watched(record, s.limits)
    if period is None:
        next_at = soonest(record, s.now)
        if next_at is None:
            s.look_never(live)
            return s.done(), Idle()
        s.look_at(live, next_at)
        return s.done(), Later(next_at)
    if record.note is None or record.note[0] != record.cursors:
        s.set_live(live, note=(record.cursors, s.now))
        s.look_at(live, soonest(record, s.now, s.now + period))
        s.wake_controller(live)
        if record.active is None:
            s.wake_worker(record.selected)
        return s.done(), Wake()
    ripe = record.note[1] + period
    if s.now < ripe:
        at = soonest(record, s.now, ripe)
        s.look_at(live, at)
        return s.done(), Later(at)
    s.set_live(live, stalled=record.cursors)
    return recover(s, live, "stalled")


@overload
def soonest(record: Live, now: int, when: int) -> int: ...
@overload
def soonest(record: Live, now: int) -> int | None: ...
def soonest(record: Live, now: int, when: int | None = None) -> int | None:
    """Return `when`, or the earlier time at which the move expires or the lifetime must be looked at."""
    times = (when, record.move.expires if record.move else None, lifetime_look_at(record, now))
    return min((each for each in times if each is not None), default=None)


def recover(s: Draft, live: str, need: Need) -> tuple[State, LookOutcome]:
    """Return Recover with a lease: until it runs out no other replica gets the work, and it doubles each time."""
    record = s.lives[live]
    s.set_live(live, tries=record.tries + 1)
    at = s.now + backoff_ms(record.tries, s.limits)
    s.look_at(live, min(at, record.move.expires) if record.move else at)
    return s.done(), Recover(record.epoch, need, record.selected, record.digital_id, record.priority, record.tries + 1)
