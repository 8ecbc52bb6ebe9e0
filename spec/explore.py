"""An exhaustive breadth-first search over the functions of dhsched.ownership: no second model.

A `World` is a protocol and its surroundings, cut down to a finite number of states. The protocol's part of a step is
always a call of the product's own function; a world adds only who calls it, and when. It is given as keys: two states
with the same key are the same state. `projection` turns a key into the variables of the TLA+ module it stands beside,
in the same order, so that the two sets of reachable states can be compared, and not only counted.

    world          beside         variables
    ownership.py   DHSched.tla    store, agents, released, trouble
    input.py       Input.tla      the live's cursors, its pull's controller, its runtime
    marks.py       Marks.tla      the same cursors on a store that forgets; controllers, runtimes, their old messages
    emits.py       Emits.tla      messages of the runtimes on a store that forgets; what each runtime knows to be stored
    homes.py       Homes.tla      those of DHSched.tla on a store that forgets; what was given out; the room
    journal.py     Journal.tla    the journal on a store that forgets; runtimes, and every ack that they sent
    time.py        Time.tla       one live and a clock: notes, leases, backoff; how long it stood still
    failover.py    Failover.tla   servers and what they hold, homes, connections, what callers were told
    cells.py       Cells.tla      what cells say of a bucket, their maps and homes; creates and movers under way
    cell_workers.py  CellWorkers.tla  a machine's record in each cell, its registration, its agent

Each world says at its top, field by field, what its projection takes from the model, and what it leaves out and why.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

Key = Hashable
Move = tuple[str, Key, tuple[str, ...]]
"""The name of a step, the state it leads to, and what was wrong with the step itself."""


class World(Protocol):
    """What the search needs to know."""

    variables: tuple[str, ...]
    """The specification's variables that a projection gives values for."""

    def initial(self) -> Key: ...

    def moves(self, key: Any) -> Iterable[Move]:
        """Every step that is possible here. Steps that change nothing may be left out, unless they are wrong."""

    def problems(self, key: Any) -> Iterable[str]:
        """The invariants that this state violates, as sentences that begin with the name of the invariant."""

    def projection(self, key: Any) -> tuple[Any, ...]:
        """The state as the specification has it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The first state or step that is wrong, and the shortest way there."""

    problems: tuple[str, ...]
    path: tuple[str, ...]

    @property
    def invariants(self) -> frozenset[str]:
        """The names of the invariants, as spec/mutants.py uses them."""
        return frozenset(problem.partition(":")[0] for problem in self.problems)

    def __str__(self) -> str:
        steps = "\n".join(f"  {number:3} {step}" for number, step in enumerate(self.path, 1))
        return "\n".join(self.problems) + f"\nafter {len(self.path)} steps\n{steps}"


@dataclass(frozen=True, slots=True)
class Explored:
    """How far the search came. `complete` is false where it was cut off; `steps` are kept if they were asked for."""

    states: int
    seconds: float
    complete: bool
    violation: Violation | None
    keys: frozenset[Key]
    steps: frozenset[tuple[Key, Key]]


def explore(world: World, *, states_max: int = 1_000_000, keep_steps: bool = False) -> Explored:
    """Visit every reachable state once, nearest first, and stop at the first that is wrong."""
    began = time.perf_counter()
    start = world.initial()
    came: dict[Key, tuple[Key, str] | None] = {start: None}
    steps: set[tuple[Key, Key]] = set()

    def done(violation: Violation | None, *, complete: bool = False) -> Explored:
        seconds = time.perf_counter() - began
        return Explored(len(came), seconds, complete, violation, frozenset(came), frozenset(steps))

    wrong = tuple(world.problems(start))
    if wrong:
        return done(Violation(wrong, ()))
    frontier = deque([start])
    while frontier:
        key = frontier.popleft()
        for label, reached, wrong in world.moves(key):
            if wrong:
                return done(Violation(wrong, (*path(came, key), label)))
            if keep_steps and reached != key:
                steps.add((key, reached))
            if reached in came:
                continue
            came[reached] = (key, label)
            wrong = tuple(world.problems(reached))
            if wrong:
                return done(Violation(wrong, path(came, reached)))
            frontier.append(reached)
        if len(came) > states_max:
            return done(None)
    return done(None, complete=True)


def path(came: dict[Key, tuple[Key, str] | None], key: Key) -> tuple[str, ...]:
    """The labels that lead to `key`."""
    labels = []
    at = came[key]
    while at is not None:
        labels.append(at[1])
        at = came[at[0]]
    return tuple(reversed(labels))
