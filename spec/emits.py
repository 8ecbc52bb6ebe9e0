"""The world of spec/Emits.tla: the messages of one live's runtimes on a store that forgets.

Projection, in the order of the specification's variables:
    epoch, active, emits, last   of the live's record; active as a flag, of a message its epoch and n
    kept                         the same four of the state that a loss goes back to
    losses, issued, said, told   of the surroundings, as the specification says
Left out: what canonical.py leaves out; pulls and input, which input.py explores. A store that has forgotten a number
does not give it out again (spec/homes.py): the highest one is put back into the record before the next generation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Emitted
from dhsched.ownership.state import EMPTY, State, frozen
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.emit import read_emit
from dhsched.ownership.steps.place import Create
from spec.canonical import NOW, canonical
from spec.configuration import Configuration
from spec.explore import Move
from spec.shapes import boot, worker_id
from spec.stores import POOL

LIVE = "t/L1"
WORKER = worker_id(1)
Shape = tuple[Any, ...]
Key = tuple[Any, ...]


class Emits:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = ("epoch", "active", "emits", "last", "kept", "losses", "issued", "said", "told")

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        self.c = configuration
        self.strict = strict
        self.limits = Limits()
        self.states: dict[Shape, State] = {}

    def initial(self) -> Key:
        arguments = {"name": "w1", "boot": boot(1), "pool": POOL, "capacity": 4}
        state, _ = STEPS["register_worker"](EMPTY, NOW, self.limits, **arguments)
        state, _ = STEPS["report"](state, NOW, self.limits, worker=WORKER, boot=boot(1))
        create = {"cause": "create", "create": Create(digital_id="d", fingerprint="f"), "operation": "first"}
        state, _ = STEPS["place"](state, NOW, self.limits, live=LIVE, candidates=(WORKER,), **create)
        shape = self.add(state)
        nothing = (0,) * self.c["MaxN"]
        return shape, shape, 0, 1, nothing, nothing

    def add(self, state: State) -> Shape:
        live = state.lives[LIVE]
        emits = tuple(read_emit(each)[:2] for each in live.emits)
        shape = (live.epoch, live.active is not None, emits, live.emitted)
        plain = replace(live, issued=live.epoch, pull_no=0)
        state = canonical(replace(state, lives=frozen({LIVE: plain})))
        found = self.states.setdefault(shape, state)
        if self.strict and found.lives[LIVE] != state.lives[LIVE]:
            raise AssertionError(f"the projection loses something:\n{found}\n{state}")
        return shape

    def projection(self, key: Key) -> tuple[Any, ...]:
        return (*key[0], *key[1:])

    def problems(self, key: Key) -> Iterator[str]:
        shape, _, losses, _, _, told = key
        emits = shape[2]
        if any(one >= other for one, other in pairwise(emits)):
            yield f"Ordered: {emits}"
        for i, (e, n) in enumerate(emits):
            missing = {*range(1, n)} - {m for of, m in emits[:i] if of == e}
            if any(not losses or m > told[e - 1] for m in missing):
                yield f"Whole: {missing} are missing before {(e, n)} of {emits}"

    def run(self, shape: Shape, step: str, /, **arguments: Any) -> tuple[State, Any]:
        return STEPS[step](self.states[shape], NOW, self.limits, live=LIVE, **arguments)

    def moves(self, key: Key) -> Iterator[Move]:
        shape, kept, losses, issued, said, told = key
        epoch, active = shape[:2]
        if not active:
            state, _ = self.run(shape, "pull", worker=WORKER, epoch=epoch, after=0, controller="c")
            yield "claim", (self.add(state), *key[1:]), ()
        if losses < self.c["Forgets"] and kept != shape:
            yield "keep", (shape, shape, *key[2:]), ()
            yield "forget", (kept, kept, losses + 1, *key[3:]), ()
        if issued < self.c["MaxN"]:
            yield "recover", (self.recovered(shape, issued), kept, losses, issued + 1, said, told), ()
        for e in range(1, issued + 1):
            if said[e - 1] < self.c["Says"]:
                yield f"{e} says", (*key[:4], put(said, e, said[e - 1] + 1), told), ()
            for n in range(1, said[e - 1] + 1):
                for t in range(told[e - 1] + 1):
                    yield from self.emitted(key, e, n, t)

    def emitted(self, key: Key, e: int, n: int, t: int) -> Iterator[Move]:
        arguments = {"worker": WORKER, "epoch": e, "n": n, "told": t, "name": "m", "data": b"{}"}
        state, outcome = self.run(key[0], "emit", **arguments)
        if isinstance(outcome, Emitted):
            told = key[5]
            reached, label = self.add(state), f"{e} emits {n}, told {t}"
            yield f"{label}, and does not hear", (reached, *key[1:]), ()
            yield label, (reached, *key[1:5], put(told, e, max(told[e - 1], outcome.n))), ()

    def recovered(self, shape: Shape, issued: int) -> Shape:
        state = self.states[shape]
        record = replace(state.lives[LIVE], issued=issued)
        state = replace(state, lives=frozen({LIVE: record}))
        arguments = {"cause": "reassign", "operation": "o", "expected": record.epoch, "candidates": (WORKER,)}
        state, _ = STEPS["place"](state, NOW, self.limits, live=LIVE, **arguments)
        return self.add(state)


def put(row: tuple[int, ...], e: int, value: int) -> tuple[int, ...]:
    return (*row[: e - 1], value, *row[e:])
