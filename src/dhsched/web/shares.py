"""Fair shares of a replica: of its requests in flight, of the ticks of its loop, and of its long connections.

Only where access is by keys are callers told apart. Where it is open, only the total is bounded, and nobody waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from dhsched.access.callers import NOBODY, Caller
from dhsched.web.problems import Problem
from dhsched.web.turns import STRANGERS, WAITING_MAX, Turns

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
        self.crowded = not most  # Half of the places are taken: before that, nobody can have more than a share.
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
        self.crowded = 2 * self.total >= self.most
        self._by_tenant[tenant] += 1
        self._by_key[tenant, key] += 1

    def end(self, tenant: str, key: str) -> None:
        """Undo one `begin`. Who has nothing in flight is forgotten, so that old keys take no memory."""
        self.total -= 1
        self.crowded = 2 * self.total >= self.most
        _less(self._by_tenant, tenant)
        _less(self._by_key, (tenant, key))


class Load(InFlight):
    """The requests of one replica. `fair` is whether its callers are told apart."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.fair = False
        self.turns = Turns()

    def refuse(self, caller: Caller) -> None:
        """Raise BUSY when the limit of requests in flight is reached, or the caller has its share of it.

        This raises nothing unless `crowded` is set or `turns` has requests that wait.
        """
        if self.fair and self.turns.full(caller.tenant):
            self.over_share += 1
            raise self._busy(f"{WAITING_MAX} requests of the tenant wait already", "the replica's limit is")
        if not self.crowded:
            return
        if self.total >= self.most:
            raise self._busy(f"this replica has {self.total} requests in flight", "its limit is")
        if self.fair and self.share_left(caller.tenant, caller.key) <= 0:
            self.over_share += 1
            raise self._busy(
                f"the key or its tenant has its share of the {self.total} requests in flight", "of at most"
            )

    def _busy(self, detail: str, limit: str) -> Problem:
        return Problem(
            "BUSY",
            f"{detail}, and {limit} {self.most}; try again later, or another replica",
            in_flight=self.total,
            in_flight_max=self.most,
        )

    async def turn(self, tenant: str) -> None:
        """Wait until a request or frame of this tenant may begin (turns.py)."""
        if self.fair and not self.turns.begin(tenant):
            await self.turns.turn(tenant)

    async def enter(self, caller: Caller) -> None:
        """Wait for the caller's turn and count a request of it, or raise BUSY."""
        await self.turn(STRANGERS if caller is NOBODY else caller.tenant)
        self.refuse(caller)
        self.begin(caller.tenant, caller.key)

    def leave(self, caller: Caller) -> None:
        """Undo one `enter`."""
        self.end(caller.tenant, caller.key)

    @contextmanager
    def parked(self, caller: Caller) -> Iterator[None]:
        """Do not count a request as in flight while it only waits. The caller must bound how many requests wait."""
        self.end(caller.tenant, caller.key)
        try:
            yield
        finally:
            self.begin(caller.tenant, caller.key)


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
