"""look: decide from the record, and from time, what a live needs now. It is the one step that time drives.

Deadlines, leases, backoff, expiries and sweeps are one mechanism: an agenda entry says when to look, and every look
raises it.
"""

from __future__ import annotations

from dataclasses import replace

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.needs import backoff_ms, needs, watched
from dhsched.ownership.outcomes import Idle, Later, LookOutcome, Need, Nothing, Recover, Swept, Wake
from dhsched.ownership.state import State


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


def look_for_stall(s: Draft, live: str) -> tuple[State, LookOutcome]:
    """Look for a stall. The first look at a standstill only wakes; a second, a full period later, recovers."""
    record = s.lives[live]
    period = watched(record, s.limits)
    expires = record.move.expires if record.move else None
    if period is None:
        if expires is None:
            s.look_never(live)
            return s.done(), Idle()
        s.look_at(live, expires)
        return s.done(), Later(expires)
    if record.note is None or record.note[0] != record.cursors:
        s.set_live(live, note=(record.cursors, s.now))
        s.look_at(live, s.now + period if expires is None else min(s.now + period, expires))
        return s.done(), Wake()
    ripe = record.note[1] + period
    if s.now < ripe:
        at = ripe if expires is None else min(ripe, expires)
        s.look_at(live, at)
        return s.done(), Later(at)
    s.set_live(live, stalled=record.cursors)
    return recover(s, live, "stalled")


def recover(s: Draft, live: str, need: Need) -> tuple[State, LookOutcome]:
    """Return Recover with a lease: until it runs out no other replica gets the work, and it doubles each time."""
    record = s.lives[live]
    s.set_live(live, tries=record.tries + 1)
    at = s.now + backoff_ms(record.tries, s.limits)
    s.look_at(live, min(at, record.move.expires) if record.move else at)
    return s.done(), Recover(record.epoch, need, record.selected, record.digital_id, record.priority, record.tries + 1)
