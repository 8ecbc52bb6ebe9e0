"""What a scenario runs on: anything that answers the sixteen steps and can show its whole state.

The pure model is the first subject. A store comes in behind the same interface with its own clock set by `wait`, so
that one schedule says the same thing about every one of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from dhsched.ownership.limits import Limits
from dhsched.ownership.model import STEPS
from dhsched.ownership.outcomes import Outcome
from dhsched.ownership.state import EMPTY, State


class Subject(Protocol):
    """One empty cell at the start. `arguments` are the keyword arguments of the model's step of that name."""

    limits: Limits
    now: int
    """The clock that the next step will see, in ms."""

    async def step(self, name: str, /, **arguments: Any) -> Outcome: ...

    async def state(self) -> State: ...

    async def wait(self, ms: int) -> None: ...


SubjectFactory = Callable[[Limits], AbstractAsyncContextManager[Subject]]


class ModelSubject:
    """The pure model with a virtual clock."""

    def __init__(self, limits: Limits, now: int = 1_000_000) -> None:
        self.limits = limits
        self.now = now
        self._state = EMPTY

    async def step(self, name: str, /, **arguments: Any) -> Outcome:
        outcome: Outcome
        self._state, outcome = STEPS[name](self._state, self.now, self.limits, **arguments)
        return outcome

    async def state(self) -> State:
        return self._state

    async def wait(self, ms: int) -> None:
        self.now += ms


@asynccontextmanager
async def model(limits: Limits) -> AsyncIterator[Subject]:
    yield ModelSubject(limits)


SUBJECTS: list[SubjectFactory] = [model]
"""Every scenario runs on every one of these; a test is named after the factory."""
