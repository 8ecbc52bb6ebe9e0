"""Fair shares of a replica's requests in flight and of its long connections. Pure: no clock, no socket.

Only callers with a key have a share. Where access is open nobody is told apart, so only the total is bounded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")
TENANT_SHARE = 3  # A tenant may have this many requests in flight for each place that is still free.


class InFlight:
    """The requests in flight: in all, of each tenant and of each key.

    A tenant may have TENANT_SHARE requests in flight for each free place. A key may have as many as there are free
    places, and as many as its tenant may have beside those that it has. So one key alone gets half of `most`, two keys
    a third each, and whoever comes next always finds a place, however many requests the others send.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self.over_share = 0  # Requests refused because their key or tenant had its share.
        self._by_key: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._by_tenant: defaultdict[str, int] = defaultdict(int)

    def share_left(self, tenant: str, key: str) -> int:
        """Return how many requests more than now the key may have in flight; 0 or less if it has its share."""
        free = self.most - self.total
        of_tenant = TENANT_SHARE * free - self._by_tenant.get(tenant, 0)
        return min(free, of_tenant) - self._by_key.get((tenant, key), 0)

    def begin(self, tenant: str, key: str) -> None:
        self.total += 1
        self._by_tenant[tenant] += 1
        self._by_key[tenant, key] += 1

    def end(self, tenant: str, key: str) -> None:
        """Undo one `begin`. Who has nothing in flight is forgotten, so that old keys take no memory."""
        self.total -= 1
        _less(self._by_tenant, tenant)
        _less(self._by_key, (tenant, key))


class Connections:
    """The long connections of each key: WebSockets and event streams."""

    def __init__(self, most_per_key: int) -> None:
        self.most_per_key = most_per_key
        self._by_key: defaultdict[str, int] = defaultdict(int)

    def of(self, key: str) -> int:
        return self._by_key.get(key, 0)

    @contextmanager
    def counted(self, key: str) -> Iterator[None]:
        """Count one connection of the key during the block."""
        self._by_key[key] += 1
        try:
            yield
        finally:
            _less(self._by_key, key)


def _less(counts: defaultdict[K, int], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
