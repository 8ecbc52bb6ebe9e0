"""Steps recorded on the model and played on a store: every answer and the state at every stop must be the model's.

What is already recorded can be sent without waiting for one answer before the next question, so playing it
on a store costs a tenth of running model and store in step: that is what makes hundreds of mutants affordable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Outcome
from dhsched.ownership.state import EMPTY, State
from dhsched.ownership.steps import take
from dhsched.store.link.link import Link
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import Script
from tests.conformance import scenario
from tests.conformance.lockstep import Mismatch, describe
from tests.conformance.operations import LIMITS, Operation, draw
from tests.conformance.real import StoreSubject
from tests.conformance.short_scenarios import SHORT_SCENARIOS
from tests.conformance.subjects import Home, ModelSubject
from tests.scenarios.language import SCENARIOS, load, read

STEPS_PER_STOP = 5
REMEMBER, FORGET = Operation("remember", {}), Operation("forget", {})


@dataclass(frozen=True, slots=True)
class Moment:
    """One recorded step: when it was taken, what it answered and what it left behind."""

    now: int
    operation: Operation
    outcome: Outcome | Home | None
    state: State

    @property
    def is_step(self) -> bool:
        """Whether a step ran: else the state, and its wakes, are those of the step before."""
        return self.outcome is not None and not isinstance(self.outcome, Home)

    @property
    def alone(self) -> bool:
        """Whether it is sent by itself: it is no step, or it changes the connection."""
        return not self.is_step or self.operation.name == "enter"


@dataclass(frozen=True, slots=True)
class Tape:
    name: str
    limits: Limits
    moments: tuple[Moment, ...]


class Recorder(ModelSubject):
    """The model, writing down what it is asked."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.moments: list[Moment] = []

    async def step(self, name: str, /, **arguments: Any) -> Outcome | Home:
        outcome = await super().step(name, **arguments)
        self.moments.append(Moment(self.now, Operation(name, arguments), outcome, self._state))
        return outcome

    async def remember(self) -> None:
        await super().remember()
        self.moments.append(Moment(self.now, REMEMBER, None, self._state))

    async def forget(self) -> None:
        await super().forget()
        self.moments.append(Moment(self.now, FORGET, None, self._state))

    async def serve(self, server: str) -> None:
        await super().serve(server)
        self.moments.append(Moment(self.now, Operation("serve", {"server": server}), None, self._state))

    async def greet(self, home: str) -> None:
        await super().greet(home)
        self.moments.append(Moment(self.now, Operation("greet", {"home": home}), None, self._state))


@cache
def scenario_tape(name: str) -> Tape:
    """One of short_scenarios.py or of tests/scenarios."""
    recorded = read(SHORT_SCENARIOS[name], name) if name in SHORT_SCENARIOS else load(SCENARIOS / f"{name}.txt")
    recorder = Recorder(recorded.limits)
    asyncio.run(scenario.run(recorded, recorder))
    return Tape(name, recorded.limits, tuple(recorder.moments))


@cache
def walk_tape(seed: int, steps: int) -> Tape:
    """A random walk, as the lockstep runs take it."""
    r, now, state = Random(seed), 1000, EMPTY
    moments: list[Moment] = []
    for _ in range(steps):
        now += r.choice([0, 0, 0, 1, 3, 12])
        operation = draw(r, state, [moment.operation for moment in moments])
        state, outcome = take(operation.name, state, now, LIMITS, **operation.arguments)
        moments.append(Moment(now, operation, outcome, state))
    return Tape(f"walk {seed}", LIMITS, tuple(moments))


async def play(tape: Tape, link: Link, scripts: dict[str, Script]) -> None:
    """Send the tape to the store behind the link; raises Mismatch where it differs."""
    subject = StoreSubject(RedisStore(link, cell="main", limits=tape.limits, scripts=scripts))
    await subject.reset()
    for start, part in parts(tape.moments):
        answers = await send(part, subject)
        try:
            found = await subject.state()
        except (KeyError, ValueError, TypeError) as error:
            raise Mismatch(f"{tape.name}, step {start + len(part)}: the state cannot be read: {error!r}") from error
        for n, (moment, answer) in enumerate(zip(part, answers, strict=True), start=start + 1):
            stop = moment is part[-1]
            wakes = subject.wakes_of(n - start) if moment.is_step else moment.state.wakes
            if answer != moment.outcome or wakes != moment.state.wakes or (stop and found != moment.state):
                sent = [each.operation for each in tape.moments[:n]]
                found = replace(found, wakes=wakes)
                what = describe(sent, moment.outcome, answer, moment.outcome, moment.state, found, [])
                raise Mismatch(f"{tape.name}, step {n}: {what}")


def parts(moments: Sequence[Moment]) -> Iterator[tuple[int, Sequence[Moment]]]:
    """What is sent at once, and where it begins: a few steps, or one moment that is alone."""
    start = 0
    while start < len(moments):
        end = start + 1
        while end < min(start + STEPS_PER_STOP, len(moments)) and not moments[start].alone and not moments[end].alone:
            end += 1
        yield start, moments[start:end]
        start = end


async def send(part: Sequence[Moment], subject: StoreSubject) -> list[Any]:
    """All steps of the part at once, each at its time: the link keeps their order. An error is an answer as well."""
    if part[0].outcome is None:
        name, arguments = part[0].operation
        await getattr(subject, name)(**arguments)
        return [None]
    calls: list[Awaitable[Any]] = []
    for turn, moment in enumerate(part, start=1):
        calls.append(subject.set_clock(moment.now, turn))
        calls.append(subject.step(moment.operation.name, **moment.operation.arguments))
    return (await asyncio.gather(*calls, return_exceptions=True))[1::2]
