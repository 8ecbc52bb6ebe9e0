"""One media clock per live: audio samples, in slots of 20 ms. Everything else is derived from it.

Slot n is due at an absolute time, so waiting a little too long in one slot is made up in the next and nothing drifts.
A process that was held up sends what it owes: audio is kept, late pictures are left out. When it owes more than
RESET_S there is no point in hurrying: the clock starts again from here, and media time simply stood still.
"""

from __future__ import annotations

from dataclasses import dataclass

SAMPLES_PER_SLOT = 960
SLOT_S = 0.020
SLOT_US = 20_000
RESET_S = 0.200
FRAME_LATE_S = 0.060  # A picture later than this is left out.


@dataclass(frozen=True, slots=True)
class Due:
    """How a slot stands: `wait_s` until it is due, or `late_s` since. One of them is 0."""

    wait_s: float
    late_s: float

    @property
    def frame_too_late(self) -> bool:
        return self.late_s > FRAME_LATE_S


class MediaClock:
    """Pure: the present time is an argument, in seconds of any steady clock."""

    def __init__(self, now: float) -> None:
        self.resets = 0
        self._start = now

    def due_at(self, slot: int) -> float:
        return self._start + slot * SLOT_S

    def slot_at(self, now: float) -> int:
        """The slot that is going on."""
        return max(0, int((now - self._start) / SLOT_S))

    def due(self, slot: int, now: float) -> Due:
        """How the slot stands. Too late by more than RESET_S, it is due now and so is everything after it."""
        wait_s = self.due_at(slot) - now
        if wait_s >= 0:
            return Due(wait_s, 0.0)
        if -wait_s > RESET_S:
            self._start = now - slot * SLOT_S
            self.resets += 1
            return Due(0.0, 0.0)
        return Due(0.0, -wait_s)
