"""When a live needs a new generation: one rule, by which `look` reports the need and `place` checks that it remains."""

from __future__ import annotations

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Need
from dhsched.ownership.state import Live


def needs(s: Draft, live: str) -> Need | None:
    """Return why the live must be placed anew, or None."""
    record = s.lives[live]
    if record.state == "ended":
        return None
    worker = s.workers[record.selected]
    return needs_anew(
        below_floor=record.epoch <= s.cell.epoch_floor,
        gone=worker.gone,
        lost=worker.lost,
        vacant=s.slot(record.selected, live, record.epoch) == "vacant",
        stalled=record.stalled == record.cursors,
    )


def needs_anew(*, below_floor: bool, gone: bool, lost: bool, vacant: bool, stalled: bool) -> Need | None:
    """Return the first reason that holds why a live that has not ended must be placed anew (Lua: lib/needs.lua)."""
    reasons: tuple[tuple[bool, Need], ...]
    reasons = ((below_floor, "floor"), (gone, "gone"), (lost, "lost"), (vacant, "vacant"), (stalled, "stalled"))
    return next((need for holds, need in reasons if holds), None)


def watched(record: Live, limits: Limits) -> int | None:
    """Return how long, in ms, the live may make no progress as it is now; None if it needs to make none."""
    if record.active is None:
        return limits.claim_wait_ms
    if record.released > record.acked:
        return limits.ack_wait_ms
    if record.appended > record.released and not record.held:
        return limits.ack_wait_ms
    return None


def backoff_ms(tries: int, limits: Limits) -> int:
    """Return the lease of this try, which doubles with every try."""
    return min(limits.backoff_max_ms, limits.lease_ms << min(tries, 20))
