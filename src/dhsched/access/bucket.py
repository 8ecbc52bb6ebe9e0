"""A token bucket: `rate_per_s` requests per second on average, and as many at once. Pure: time is an argument."""

from __future__ import annotations


class Bucket:
    """The bucket of one key in one replica."""

    __slots__ = ("_at", "_left", "rate_per_s")

    def __init__(self, rate_per_s: float, now: float) -> None:
        self.rate_per_s = rate_per_s
        self._left = self._size
        self._at = now

    @property
    def _size(self) -> float:
        return max(1.0, self.rate_per_s)

    def take(self, now: float) -> float:
        """Take one request and return 0; if there is none left, return the seconds until there is."""
        self._fill(now)
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self.rate_per_s

    def charge(self, count: int, now: float) -> float:
        """Take `count` requests even if there are fewer, and return how many seconds the caller must wait before its
        next ones: for sockets, which are slowed down rather than refused."""
        self._fill(now)
        self._left -= count
        return max(0.0, -self._left / self.rate_per_s)

    def _fill(self, now: float) -> None:
        self._left = min(self._size, self._left + (now - self._at) * self.rate_per_s)
        self._at = now
