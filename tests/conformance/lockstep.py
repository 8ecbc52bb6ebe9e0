"""Model, memory store and real store in step: the same operations, equal outcomes, equal states, every invariant."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

from dhsched.ownership import invariants
from dhsched.ownership.outcomes import Items
from dhsched.ownership.state import EMPTY, Cell, State
from dhsched.ownership.steps import take
from dhsched.store.steps.memory import MemoryStore
from tests.conformance.operations import LIMITS, Operation, draw
from tests.conformance.real import StoreSubject


class Mismatch(AssertionError):
    """The store did not do what the model did."""


async def run(
    r: Random,
    subject: StoreSubject,
    *,
    steps: int,
    reached: set[tuple[str, str]] | None = None,
    cell: Cell | None = None,
) -> None:
    """`steps` random operations on all three, from an empty cell, or from one whose numbers have come as far as `cell`;
    raises Mismatch at the first difference."""
    await subject.reset()
    memory = MemoryStore(limits=LIMITS, clock=lambda: subject.now)
    state, sent, releases = EMPTY, list[Operation](), invariants.Releases()
    if cell is not None:
        state = memory.state = replace(EMPTY, cell=cell)
        assert not cell.homes, "the first home is entered below"
        counts = {each.name: getattr(cell, each.name) for each in fields(cell) if each.name != "homes"}
        fields_of = [word for name, value in counts.items() for word in (name, value)]
        await subject.store.link.call("HSET", subject.store.keys.cell, *fields_of)
    for _ in range(steps):
        await subject.wait(r.choice([0, 0, 0, 1, 3, 12]))
        if r.random() < 0.02:
            await subject.store.link.call("SCRIPT", "FLUSH")
        operation = draw(r, state, sent)
        sent.append(operation)
        name, arguments = operation
        after, expected = take(name, state, subject.now, LIMITS, **arguments)
        in_memory = await getattr(memory, name)(**arguments)
        got = await subject.step(name, **arguments)
        found = await subject.state()
        if reached is not None:
            reached.add((name, type(expected).__name__))
        broken = [
            *invariants.of_state(after),
            *invariants.of_step(state, after),
            *carried(state, after, arguments),
            *(released(releases, arguments) if isinstance(expected, Items) else []),
        ]
        same = all(each == after and each.wakes == after.wakes for each in (found, memory.state))
        if got != expected or in_memory != expected or not same or broken:
            raise Mismatch(describe(sent, expected, got, in_memory, after, found, broken))
        state = after


def carried(before: State, after: State, arguments: dict[str, Any]) -> list[str]:
    epoch = arguments.get("epoch", arguments.get("expected"))
    return [] if epoch is None else invariants.old_work(before, after, arguments["live"], epoch)


def released(releases: invariants.Releases, a: dict[str, Any]) -> list[str]:
    return releases.release(a["live"], a["worker"], a["epoch"], a["pull_no"])


def describe(
    sent: list[Operation], expected: Any, got: Any, in_memory: Any, after: State, found: State, broken: list[str]
) -> str:
    lines = ["the last operations:", *(f"  {name} {arguments}" for name, arguments in sent[-8:])]
    lines += [f"model:  {expected}", f"store:  {got}", f"memory: {in_memory}", *broken]
    for field in fields(State):
        ours, theirs = getattr(after, field.name), getattr(found, field.name)
        if ours != theirs:
            lines += [f"{field.name}:", f"  model {ours}", f"  store {theirs}"]
    return "\n".join(lines)
