"""The limits of the protocol: every wait, queue and retry of a step has one, with its unit in its name.

One `Limits` serves the model and the store: a Lua step names the limits that it needs in its header, and both sides
get the same values. All times are whole milliseconds, because the store's scores hold those exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from dhsched.errors import BadSetting
from dhsched.types import TERM_STEP


@dataclass(frozen=True, slots=True)
class Limits:
    """Protocol limits. The defaults suit avatars: starts of seconds, utterances of up to half a minute."""

    claim_wait_ms: int = 15_000  # A generation unclaimed for twice this is placed anew.
    start_wait_max_ms: int = 300_000  # A Worker that says "still starting" stops that clock for at most this long.
    ack_wait_ms: int = 30_000  # Input released or pending without progress for twice this is a stall.
    lease_ms: int = 2_000  # How long a replica that was told RECOVER has before another one is told.
    backoff_max_ms: int = 300_000  # The lease doubles with every try, up to this.
    ended_ttl_ms: int = 86_400_000  # How long an ended live is remembered: the retry horizon of create and end.
    move_expires_ms: int = 120_000  # A reservation that nobody carried on is given back after this.
    reap_ms: int = 600_000  # A lost Worker with nothing left on it is forgotten after this.
    boots_window_ms: int = 600_000  # More than boots_max boots of one name within this window cordon the newest.
    boots_max: int = 8
    candidates_max: int = 16  # Candidates and Pools that one place may name.
    walk_max: int = 64  # Lives that one Worker's return makes due.
    starts_create_max: int = 16  # Lives that may be starting on one Worker at once, for creates and planned moves.
    starts_recover_max: int = 8  # The same for recovery, lower: a mass recovery must not bury the survivors.
    pace_max: int = 8  # Both are multiplied by the Worker's pace, from 1 to this, which follows its starts:
    start_quick_ms: int = 500  # one that took no longer than this doubles the pace,
    start_slow_ms: int = 1_500  # one that took longer than this halves it.
    cutovers_max: int = 4  # Lives of one source Worker with a move under way.
    pending_max: int = 1_000  # Items accepted and not yet acked, per live.
    producers_max: int = 8  # WebSocket producers remembered per live.
    recent_min: int = 64  # POST request ids remembered per live: at least this many, and ...
    recent_ms: int = 600_000  # ... at least this long; also how long an idle producer is remembered.
    recent_max: int = 4_096  # Never more than this many.
    poison_max: int = 3  # An item that was at the head when this many generations died is dropped.
    dead_max: int = 16  # Dropped items kept per live.
    history_max: int = 16  # Past generations kept per live; also how far back an operation id is recognised.
    term_step: int = TERM_STEP
    state_bytes_max: int = 65_536  # The runtime's state, saved with an ack; also the most that one journal entry has.
    journal_bytes_max: int = 1_048_576  # All entries of a live's journal,
    journal_entries_max: int = 1_024  # and how many there may be.
    emits_max: int = 256  # Messages of its runtimes kept per live; with one more the oldest is forgotten.
    emits_bytes_max: int = 32_768  # Bytes of these messages; with more, the oldest ones are forgotten.

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 10**12:
                raise BadSetting(f"{field.name} is {value!r}; it must be a whole number from 1 to 10^12")
        if self.recent_max < self.recent_min:
            raise BadSetting(f"recent_max is {self.recent_max}, below recent_min, which is {self.recent_min}")


DEFAULT_LIMITS = Limits()
