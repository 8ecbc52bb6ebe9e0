"""Turns of tenants in the event loop, so that no tenant makes the ticks so long that the others wait for it.

A tick of the event loop works on everything that has arrived. If one tenant has a thousand requests there, everybody
else waits for a thousand requests, at each await. So while several tenants are active, at most TICK_MAX requests (or
frames of streams) begin in one tick. The others wait, each tenant's in their order, and at each tick the tenants take
turns: who has few requests has them served at once, and who has many gets the rest. No time is lost by that, since the
loop goes on with the next tick at once. A tenant that is alone has no limit: many of its requests share one call to the
store.

Requests that are refused before anybody knows whose they are, such as those with forged tokens, count as one tenant,
which has its turn when no other tenant's requests wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

TICK_MAX = 4  # Requests that begin in one tick of the loop, while several tenants are active; about 5 ms.
ACTIVE_S = 5.0  # A tenant is active until 5 to 10 s after its last request.
WAITING_MAX = 1_000  # Requests of one tenant that wait; one more is refused as BUSY.
STRANGERS = ""
"""The tenant of requests that nobody is known to have made. No tenant has this name."""


class Turns:
    """Decides for each request whether it begins in this tick of the loop."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waited = 0  # Requests that did not begin in their first tick.
        self.waiting: dict[str, deque[asyncio.Future[None]]] = {}  # By tenant; whose turn is next comes first.
        self._call_soon = call_soon
        self._monotonic = monotonic
        self._begun = 0  # In this tick.
        self._active: set[str] = set()
        self._active_before: set[str] = set()
        self._active_since = monotonic()
        self._several = False
        self._ticking = False

    def begin(self, tenant: str) -> bool:
        """Return whether a request of this tenant may begin now; if not, await `turn`."""
        if not self._ticking:
            self._tick_soon()
        if tenant not in self._active:
            self._active.add(tenant)
            self._several = len(self._active | self._active_before) > 1
        if self._several and (self._begun >= TICK_MAX or tenant in self.waiting):
            return False
        self._begun += 1
        return True

    def full(self, tenant: str) -> bool:
        """Return whether as many requests of this tenant wait as may."""
        return len(self.waiting.get(tenant, ())) >= WAITING_MAX

    async def turn(self, tenant: str) -> None:
        """Wait until a request of this tenant may begin, after those of the tenant that wait already."""
        self.waited += 1
        mine = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(tenant, deque()).append(mine)
        await mine

    def tick(self) -> None:
        """Begin another tick: let the next requests begin, one of each tenant after the other."""
        self._ticking = False
        self._begun = 0
        now = self._monotonic()
        if now - self._active_since >= ACTIVE_S:
            self._active_before, self._active, self._active_since = self._active, {*self.waiting}, now
            self._several = len(self._active | self._active_before) > 1
        while self.waiting and (self._begun < TICK_MAX or not self._several):
            tenant = next((each for each in self.waiting if each != STRANGERS), STRANGERS)
            waiting = self.waiting.pop(tenant)
            first = waiting.popleft()
            if not first.done():  # Else the request was given up.
                first.set_result(None)
                self._begun += 1
            if waiting:
                self.waiting[tenant] = waiting
        if self._begun:
            self._tick_soon()

    def _tick_soon(self) -> None:
        self._ticking = True
        (self._call_soon or asyncio.get_running_loop().call_soon)(self.tick)
