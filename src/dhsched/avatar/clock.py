"""One media clock per live: audio samples, in slots of 20 ms. All other times are derived from it.

Slot n is due at an absolute time, so waiting a little too long in one slot is made up in the next and nothing drifts. A
process that was delayed catches up: late audio is sent, late pictures are left out. After a delay of more than RESET_S
catching up is no use: the clock starts again from now, and media time simply stood still.
"""

from __future__ import annotations

from dataclasses import dataclass

SAMPLES_PER_SLOT = 960
SLOT_S = 0.020
SLOT_US = 20_000
RESET_S = 0.200  # A slot that is later than this restarts the clock.
FRAME_LATE_S = 0.060  # A picture that is later than this is left out.


@dataclass(frozen=True, slots=True)
class Due:
    """When a slot is due: in `wait_s`, or `late_s` ago. One of them is 0; both are, if media time stood still for
    `stood_s` and the clock was restarted."""

    wait_s: float
    late_s: float
    stood_s: float = 0.0

    @property
    def frame_too_late(self) -> bool:
        return self.late_s > FRAME_LATE_S


class Lateness:
    """How much of the output of one live is late, slot by slot. Pure."""

    def __init__(self) -> None:
        self._left_out = False  # The picture of the last frame is missing.

    def of_slot(self, due: Due, *, picture: bool, left_out: bool) -> float:
        """Return the seconds that count for this slot, in which a `picture` is shown, or is due and `left_out`.

        A slot counts as long as the picture that should be seen in it is missing. Time for which sound and picture
        stood still counts in the slot that follows. Sound that is a little late counts as in time: it is not left out,
        and viewers have it buffered.
        """
        self._left_out = left_out or (self._left_out and not picture)
        return due.stood_s + (SLOT_S if self._left_out else 0.0)


class MediaClock:
    """The media clock. Pure: the present time is an argument, in seconds of any steady clock."""

    def __init__(self, now: float) -> None:
        self.resets = 0
        self._start = now

    def slot_at(self, now: float) -> int:
        """Return the current slot."""
        return max(0, int((now - self._start) / SLOT_S))

    def due(self, slot: int, now: float) -> Due:
        """Return when the slot is due. If it is late by more than RESET_S, restart the clock: it is due now."""
        if (wait_s := self._start + slot * SLOT_S - now) >= 0:
            return Due(wait_s, 0.0)
        if -wait_s > RESET_S:
            self._start = now - slot * SLOT_S
            self.resets += 1
            return Due(0.0, 0.0, stood_s=-wait_s)
        return Due(0.0, -wait_s)
