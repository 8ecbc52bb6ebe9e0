"""The model behind the store's interface, for tests, simulations and readers without a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.ownership.state import EMPTY, State
from dhsched.ownership.steps import take
from dhsched.store.steps.api import Store


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore(Store):
    """One cell in this process's memory, which is lost with the process."""

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.limits = limits
        self.state: State = EMPTY
        self._clock = clock

    async def step(self, step: str, /, **arguments: Any) -> Any:
        self.state, outcome = take(step, self.state, self._clock(), self.limits, **arguments)
        return outcome

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
