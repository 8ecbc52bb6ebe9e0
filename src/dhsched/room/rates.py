"""Limits how often viewers may type: per address, and per live for all its viewers together.

Viewers have no keys, so only the address tells viewers apart. The rate of a live bounds what many addresses do
together. An interrupt drops every pending item, also the app's, so interrupts have buckets of their own with a quarter
of the rate.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from dhsched.access.bucket import Bucket
from dhsched.errors import TooManyRequests
from dhsched.room.settings import RoomSettings

BUCKETS_MAX = 10_000  # Past this the bucket that was used longest ago is forgotten.
INTERRUPT_SHARE = 0.25
SITE_BITS = 64  # Lower bits of an IPv6 address that are ignored: one viewer can have all addresses of a site.


class Rates:
    """The buckets of one room process."""

    def __init__(self, settings: RoomSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str, str], Bucket] = OrderedDict()

    def take(self, *, address: str, live: str, kind: str) -> None:
        """Count one item; raise TooManyRequests past either rate."""
        share = INTERRUPT_SHARE if kind == "interrupt" else 1.0
        for whose, name, rate_per_s, who in (
            ("address", site_of(address), self._settings.viewer_rate_per_s, "your address"),
            ("live", live, self._settings.live_rate_per_s, "the viewers of this live"),
        ):
            wait_s = self._bucket((kind, whose, name), rate_per_s * share).take(self._clock())
            if wait_s > 0:
                raise TooManyRequests(
                    f"{who} may send {rate_per_s * share:g} items of kind {kind} a second; wait {wait_s:.1f} s",
                    retry_after_s=max(1, math.ceil(wait_s)),
                )

    def _bucket(self, key: tuple[str, str, str], rate_per_s: float) -> Bucket:
        found = self._buckets.get(key)
        if found is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.popitem(last=False)
            found = self._buckets[key] = Bucket(rate_per_s, self._clock())
        self._buckets.move_to_end(key)
        return found


def site_of(address: str) -> str:
    """Return the address that counts as one viewer: an IPv4 address, or the site of an IPv6 address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> SITE_BITS << SITE_BITS))
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)
