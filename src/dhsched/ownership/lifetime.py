"""The lifetime of a live: when a look ends a live that has been idle too long, or is too old.

Idle means that no input was appended. An append reads no clock for it: a look notes how much was appended, and when it
saw that first. It looks again a quarter of `idle_ms` later, so a live ends between one and one and a quarter of its
`idle_ms` after its last input. In Lua: lib/lifetime.lua.
"""

from __future__ import annotations

from dhsched.ownership.state import Live
from dhsched.types import LifetimeReason

IDLE_LOOKS = 4  # Looks in one `idle_ms`; a live ends up to one part of this many later than its `idle_ms`.


def lifetime_over(record: Live, now: int) -> LifetimeReason | None:
    """Return why the live must end now, or None. The look has noted in `seen` what was appended.

    Only an open live has a lifetime: a closing one is ending already.
    """
    if record.state != "open":
        return None
    if record.max_ms and now >= record.created_at + record.max_ms:
        return "age"
    if record.idle_ms and now >= record.seen[1] + record.idle_ms:
        return "idle"
    return None


def lifetime_look_at(record: Live, now: int) -> int | None:
    """Return when the lifetime must be looked at next; None for a live without one."""
    if record.state != "open":
        return None
    times = [record.created_at + record.max_ms] if record.max_ms else []
    if record.idle_ms:
        times += [now + record.idle_ms // IDLE_LOOKS, record.seen[1] + record.idle_ms]
    return min(times, default=None)
