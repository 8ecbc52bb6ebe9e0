"""Limits how often viewers may type: each viewer, and all viewers of a live together.

A token tells viewers apart and may have rates of its own; where access is open, only the address does. The rate of a
live bounds what many viewers do together. An interrupt drops every pending item, also the app's, so interrupts have
buckets of their own, with a quarter of the rate unless the token has another.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from dhsched.access.bucket import Bucket
from dhsched.access.viewers import ANYBODY, VerifiedViewer
from dhsched.errors import TooManyRequests
from dhsched.room.settings import RoomSettings

BUCKETS_MAX = 10_000  # Past this the bucket that was used longest ago is forgotten.
INTERRUPT_SHARE = 0.25


class Rates:
    """The buckets of one room process."""

    def __init__(self, settings: RoomSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str, str], Bucket] = OrderedDict()

    def take(self, *, address: str, live: str, kind: str, viewer: VerifiedViewer = ANYBODY) -> None:
        """Count one item; raise TooManyRequests past either rate."""
        interrupts, own = kind == "interrupt", viewer.viewer
        share = INTERRUPT_SHARE if interrupts else 1.0
        given = own.interrupt_rate_per_s if interrupts else own.say_rate_per_s
        each_per_s = self._settings.viewer_rate_per_s * share if given is None else given
        # The name has the rate in it: a renewed token may have another one.
        named = ("viewer", f"{live}/{each_per_s:g}/{viewer.name}", each_per_s, "you")
        unnamed = ("address", address, each_per_s, "your address")
        everybody = ("live", live, self._settings.live_rate_per_s * share, "the viewers of this live")
        for whose, name, rate_per_s, who in (named if viewer.kid else unnamed, everybody):
            if (wait_s := self._bucket((kind, whose, name), rate_per_s).take(self._clock())) > 0:
                raise TooManyRequests(
                    f"{who} may send {rate_per_s:g} items of kind {kind} a second; wait {wait_s:.1f} s",
                    retry_after_s=max(1, math.ceil(wait_s)),
                )

    def _bucket(self, key: tuple[str, str, str], rate_per_s: float) -> Bucket:
        if (found := self._buckets.get(key)) is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.popitem(last=False)
            found = self._buckets[key] = Bucket(rate_per_s, self._clock())
        self._buckets.move_to_end(key)
        return found
