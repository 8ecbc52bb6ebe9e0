"""One media clock per live, over all its generations. Pure: `now_us` is the room's own monotonic clock.

Each generation counts from 0. Viewers get one clock that goes on with the room's: at a take-over the first keyframe
gets the current time, so a gap of half a second is half a second in the timestamps as well. Then a viewer's jitter
buffer sees a pause, not packets that are early or late, and does not grow. Audio and video of one generation are always
moved by the same amount: lip sync is the publisher's.

A publisher whose clock stood still (it was starved, and went on where it was) is late by that much from then on. The
viewer would learn the lateness as delay and keep it. So lasting lateness is taken out: the clock is set once, for both.
Early packets could wait only in the viewers' buffers, so earliness is taken out at once.
"""

from __future__ import annotations

from dhsched.room.packets import AUDIO, VIDEO

EARLY_MAX_US = 200_000  # A packet that is earlier than this sets the clock.
LATE_MAX_US = 80_000  # A window whose most punctual packet is later than this sets the clock.
WINDOW_US = 1_000_000  # Lateness is measured over windows of this length.


class MediaClock:
    """The media clock of one live."""

    def __init__(self) -> None:
        self.sets = 0  # How often the clock was set within a generation.
        self._offset_us = 0
        self._last_us = {VIDEO: -1, AUDIO: -1}
        self._window_us = 0  # When the window began ...
        self._punctual_us: int | None = None  # ... and how late its most punctual packet was.

    def take_over(self, pts_us: int, now_us: int) -> None:
        """Set the clock for another publisher, which goes on air with this picture."""
        self._offset_us = max(now_us, *(last + 1 for last in self._last_us.values())) - pts_us
        self._begin_window(now_us)

    def at(self, kind: int, pts_us: int, now_us: int) -> int | None:
        """Return when viewers show this packet; None if that is not after the last packet sent."""
        self._correct(pts_us, now_us)
        if (at_us := pts_us + self._offset_us) <= self._last_us[kind]:
            return None
        self._last_us[kind] = at_us
        return at_us

    def _correct(self, pts_us: int, now_us: int) -> None:
        if (late_us := now_us - pts_us - self._offset_us) < -EARLY_MAX_US:
            self._set(late_us, now_us)
            return
        if self._punctual_us is None or late_us < self._punctual_us:
            self._punctual_us = late_us
        if now_us - self._window_us >= WINDOW_US:
            if self._punctual_us > LATE_MAX_US:
                self._set(self._punctual_us, now_us)
            else:
                self._begin_window(now_us)

    def _set(self, by_us: int, now_us: int) -> None:
        self._offset_us += by_us
        self.sets += 1
        self._begin_window(now_us)

    def _begin_window(self, now_us: int) -> None:
        self._window_us, self._punctual_us = now_us, None
