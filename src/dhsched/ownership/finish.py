"""The end of a live, for every step that ends one."""

from __future__ import annotations

from dhsched.ownership.draft import Draft
from dhsched.ownership.state import Journal, frozen


def finish(s: Draft, live: str) -> None:
    """End the live: give back everything it holds, and drop and count what is left of its input."""
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
        journal=Journal(),
    )
    s.ended |= {live}
    s.look_at(live, s.now + s.limits.ended_ttl_ms)
