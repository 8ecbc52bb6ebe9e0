"""What a scenario runs on: anything that answers the eighteen steps and can show its whole state.

The pure model is the first subject. A store comes in behind the same interface with its own clock set by `wait`, so
that one scenario says the same thing about every one of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Outcome
from dhsched.ownership.state import EMPTY, State
from dhsched.ownership.steps import SAME_HOME, take
from dhsched.ownership.steps.enter import is_home
from dhsched.store.steps.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class Home:
    """The step did not run: the cell, or its server, has another home than the connection greeted."""


class Subject(Protocol):
    """One empty cell at the start, on a server without a name, and one connection, which has greeted it.

    `arguments` are the keyword arguments of the model's step of that name; `enter` names the server, and greets.
    """

    limits: Limits
    now: int
    """The clock that the next step will see, in ms."""

    async def step(self, name: str, /, **arguments: Any) -> Outcome | Home: ...

    async def serve(self, server: str) -> None:
        """The server has this name from now on, as after a restart or a promotion; connections stay as they are."""

    async def greet(self, home: str) -> None:
        """What comes next comes from a connection that greeted this home, and has not entered since."""

    async def state(self) -> State: ...

    async def wait(self, ms: int) -> None: ...

    async def remember(self) -> None:
        """Keep the state of now. `forget` goes back to it, as a store does that had not saved its last second."""

    async def forget(self) -> None: ...


SubjectFactory = Callable[[Limits], AbstractAsyncContextManager[Subject]]


class ModelSubject:
    """The pure model with a virtual clock."""

    def __init__(self, limits: Limits, now: int = 1_000_000) -> None:
        self.limits = limits
        self.now = now
        self._state = EMPTY
        self._remembered = EMPTY
        self._server = ""
        self._greeted = ""

    async def step(self, name: str, /, **arguments: Any) -> Outcome | Home:
        if name == "enter":
            self._server = self._greeted = arguments["server"]
        else:
            server = None if name in SAME_HOME else self._server
            if not is_home((await self.state()).cell, greeted=self._greeted, server=server):
                return Home()
        return await self._run(name, **arguments)

    async def _run(self, name: str, /, **arguments: Any) -> Outcome:
        outcome: Outcome
        self._state, outcome = take(name, self._state, self.now, self.limits, **arguments)
        return outcome

    async def serve(self, server: str) -> None:
        self._server = server

    async def greet(self, home: str) -> None:
        self._greeted = home

    async def state(self) -> State:
        return self._state

    async def wait(self, ms: int) -> None:
        self.now += ms

    async def remember(self) -> None:
        self._remembered = self._state

    async def forget(self) -> None:
        self._state = self._remembered


@asynccontextmanager
async def model(limits: Limits) -> AsyncIterator[Subject]:
    yield ModelSubject(limits)


class MemorySubject(ModelSubject):
    """The memory store: the model again, behind the store's own checks."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._store = MemoryStore(limits=limits, clock=lambda: self.now)

    async def _run(self, name: str, /, **arguments: Any) -> Outcome:
        outcome: Outcome = await getattr(self._store, name)(**arguments)
        return outcome

    async def state(self) -> State:
        return self._store.state

    async def remember(self) -> None:
        self._remembered = self._store.state

    async def forget(self) -> None:
        self._store.state = self._remembered


@asynccontextmanager
async def memory(limits: Limits) -> AsyncIterator[Subject]:
    yield MemorySubject(limits)


SUBJECTS: dict[str, SubjectFactory] = {"model": model, "memory": memory}
"""Subjects that need no server; real.py has those that do."""
