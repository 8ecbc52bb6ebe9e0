"""The world of spec/Marks.tla: the input of one live on a store that forgets, explored with the product's functions.

Projection, in the order of the specification's variables:
    epoch, sel, active, pull, released, acked   of the live's record; active as a flag
    mark, hist      the mark of item `acked`; the marks of all items, of which the record has those that are pending
    kept            the same eight of the state that a loss goes back to
    losses, drawn, grants, trails, heard, eaten     of the surroundings, as the specification says
Left out: what canonical.py leaves out; who is blamed for what (`suspect`, `forgot`), which input.py explores; request
ids, which every append here has its own of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dhsched.ownership import items
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Acked, Items, Pulling
from dhsched.ownership.state import EMPTY, State, frozen
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from spec.canonical import NOW, canonical
from spec.configuration import Configuration
from spec.explore import Move
from spec.shapes import boot, worker_id, worker_number
from spec.stores import POOL

LIVE = "t/L1"
NOTHING = (0, 0)
Pair = tuple[int, int]
Trail = tuple[Pair, ...]
Shape = tuple[Any, ...]
Key = tuple[Any, ...]


class Marks:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = (
        *("epoch", "sel", "active", "pull", "released", "acked", "mark", "hist"),
        *("kept", "losses", "drawn", "grants", "trails", "heard", "eaten"),
    )

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        self.c = configuration
        self.on = configuration.on
        self.strict = strict
        self.limits = Limits(poison_max=1_000)
        self.states: dict[Shape, State] = {}

    def initial(self) -> Key:
        state = EMPTY
        for w in (1, 2):
            arguments = {"name": f"w{w}", "boot": boot(w), "pool": POOL, "capacity": 4}
            state, _ = STEPS["register_worker"](canonical(state), NOW, self.limits, **arguments)
            state, _ = STEPS["report"](state, NOW, self.limits, worker=worker_id(w), boot=boot(w))
        create = {"cause": "create", "create": Create(digital_id="d", fingerprint="f"), "operation": "first"}
        state, _ = STEPS["place"](state, NOW, self.limits, live=LIVE, candidates=(worker_id(1),), **create)
        shape = self.add(state, ())
        each = tuple(tuple(() for _ in range(self.c["MaxN"])) for _ in (1, 2))
        nobody = tuple(tuple(0 for _ in range(self.c["MaxN"])) for _ in (1, 2))
        return shape, shape, 0, 0, (), each, nobody, (False,) * self.c["Appends"]

    def problems(self, key: Key) -> Iterator[str]:
        _, _, _, _, released, acked, mark, hist = key[0]
        if not acked <= released <= len(hist) or (acked and mark != hist[acked - 1]):
            yield f"Cursors: acked {acked} with mark {mark}, released {released} of {hist}"

    def projection(self, key: Key) -> tuple[Any, ...]:
        return (*key[0], *key[1:])

    def add(self, state: State, hist: tuple[int, ...]) -> Shape:
        live = state.lives[LIVE]
        for worker, table in state.slots.items():
            for tag, slot in table.items():
                if slot == "departing":
                    arguments = {"worker": worker, "live": LIVE, "number": int(tag.rpartition("@")[2])}
                    state, _ = STEPS["depart"](state, NOW, self.limits, **arguments)
        mark = hist[live.acked - 1] if live.acked else 0
        pending = tuple(number_of(blob) for blob in live.pending)
        if hist[live.acked :] != pending or live.acked_mark != (text_of(mark) if mark else b""):
            raise AssertionError(f"the record has {live.acked_mark!r} and {pending}, and {hist} was appended")
        own = (live.epoch, worker_number(live.selected), live.active is not None, live.pull_no)
        shape = (*own, live.released, live.acked, mark, hist)
        plain = replace(live, suspect=None, forgot=False, recent=frozen({}))
        state = canonical(replace(state, lives=frozen({LIVE: plain})))
        found = self.states.setdefault(shape, state)
        if self.strict and replace(found.lives[LIVE], note=None) != replace(state.lives[LIVE], note=None):
            raise AssertionError(f"the projection loses something:\n{found}\n{state}")
        return shape

    # -- steps

    def moves(self, key: Key) -> Iterator[Move]:
        shape, kept, losses, drawn, grants, _, heard, eaten = key
        if drawn < self.c["Appends"]:
            yield self.appended(key, "text", drawn + 1)
            if "interrupts" in self.on:
                yield self.appended(key, "interrupt", -(drawn + 1))
        yield from self.recovering(key)
        if losses < self.c["Forgets"] and kept != shape:
            yield "keep", (shape, shape, *key[2:]), ()
            yield "forget", (kept, kept, losses + 1, *key[3:]), ()
        for w in (1, 2):
            for e in range(1, self.c["MaxN"] + 1):
                yield from self.pulls(key, w, e)
                yield from self.acks(key, w, e)
                if heard[w - 1][e - 1]:
                    yield f"{w}@{e} hangs up", (*key[:6], put(heard, w, e, 0), eaten), ()
        for g in range(1, len(grants) + 1):
            yield from self.releases(key, g)

    def run(self, key: Key, step: str, **arguments: Any) -> tuple[State, Any]:
        state, outcome = STEPS[step](self.states[key[0]], NOW, self.limits, live=LIVE, **arguments)
        return state, outcome

    def appended(self, key: Key, kind: str, mark: int) -> Move:
        state, _ = self.run(key, "append_input", kind=kind, payload=b"", request=f"r{mark}", mark=text_of(mark))
        return f"append {kind}", (self.add(state, (*key[0][7], mark)), *key[1:3], key[3] + 1, *key[4:]), ()

    def recovering(self, key: Key) -> Iterator[Move]:
        epoch, sel = key[0][0], key[0][1]
        if epoch == self.c["MaxN"]:
            return
        crashed, _ = self.run(key, "depart", worker=worker_id(sel), number=epoch)
        for w in (1, 2):
            arguments = {"cause": "recover", "expected": epoch, "candidates": (worker_id(w),), "operation": "new"}
            state, _ = STEPS["place"](crashed, NOW, self.limits, live=LIVE, **arguments)
            yield f"recover on {w}", (self.add(state, key[0][7]), *key[1:]), ()

    def pulls(self, key: Key, w: int, e: int) -> Iterator[Move]:
        (*_, acked, _, hist), kept, losses, drawn, grants, trails, heard, eaten = key
        trail: Trail = trails[w - 1][e - 1]
        if len(grants) == self.c["Grants"]:
            return
        for i in range(1, max(1, len(trail)) + 1):
            if i < len(trail) and "ghosts" not in self.on:
                continue
            named = NOTHING if i == 1 else trail[i - 1]
            arguments = {"after": named[0], "mark": text_of(named[1]), "controller": "c"}
            state, outcome = self.run(key, "pull", worker=worker_id(w), epoch=e, **arguments)
            if not isinstance(outcome, Pulling):
                continue
            shape = self.add(state, hist)
            more = (*grants, (w, e, outcome.pull_no, (named,)))
            for told in (False, True) if i >= len(trail) else (False,):
                label = f"{w}@{e} pulls after {named}{'' if told else ', and does not hear'}"
                begins = put(trails, w, e, ((outcome.after, shape[6]),)) if told and len(trail) <= 1 else trails
                listens = put(heard, w, e, len(more)) if told else heard
                strange = [(n, m) for n, m in trail[1:] if n > acked and not (n <= len(hist) and hist[n - 1] == m)]
                wrong = (f"Granted: {w}@{e} has {strange}, the store {hist}",) if told and strange else ()
                yield label, (shape, kept, losses, drawn, more, begins, listens, eaten), wrong

    def releases(self, key: Key, g: int) -> Iterator[Move]:
        shape, kept, losses, drawn, grants, trails, heard, eaten = key
        acked, hist = shape[5], shape[7]
        w, e, p, asked = grants[g - 1]
        for i in range(1, len(asked) + 1):
            if i < len(asked) and "ghosts" not in self.on:
                continue
            n, m = asked[i - 1]
            for credit in range(1, len(hist) - acked + 1):
                arguments = {"pull_no": p, "after": n, "mark": text_of(m), "credit": credit}
                state, outcome = self.run(key, "release_input", worker=worker_id(w), epoch=e, **arguments)
                if not isinstance(outcome, Items):
                    continue
                first, last = outcome.first, outcome.first + len(outcome.items) - 1
                reached = self.add(state, hist)
                label = f"grant {g} releases {first} to {last} after {(n, m)}"
                yield f"{label}, unheard", (reached, *key[1:]), ()
                if i < len(asked):
                    continue
                more = (*grants[: g - 1], (w, e, p, (*asked, (last, hist[last - 1]))), *grants[g:])
                if heard[w - 1][e - 1] != g:
                    yield label, (reached, kept, losses, drawn, more, trails, heard, eaten), ()
                    continue
                trail: Trail = trails[w - 1][e - 1]
                taken = take(trail, first, last, hist)
                listens = heard if len(taken) - len(trail) == last - first + 1 else put(heard, w, e, 0)
                yield label, (reached, kept, losses, drawn, more, put(trails, w, e, taken), listens, eaten), ()

    def acks(self, key: Key, w: int, e: int) -> Iterator[Move]:
        shape, *rest, eaten = key
        acked, hist = shape[5], shape[7]
        trail: Trail = rest[4][w - 1][e - 1]
        for i in range(2, len(trail) + 1):
            n, m = trail[i - 1]
            state, outcome = self.run(key, "ack_input", worker=worker_id(w), epoch=e, n=n, mark=text_of(m))
            if not isinstance(outcome, Acked) or n <= acked:
                continue
            settled = [(x, hist[x - 1]) for x in range(acked + 1, n + 1)]
            lost = [(x, mark) for x, mark in settled if (x, mark) not in trail[1:] and not eaten[abs(mark) - 1]]
            had = {abs(mark) for _, mark in trail[1:i]}
            now_eaten = tuple(was or x in had for x, was in enumerate(eaten, 1))
            wrong = (f"Consumed: {w}@{e} acked {(n, m)} and never had {lost} of {hist}",) if lost else ()
            # A broken rule may leave a state that no record can be in: what was wrong is said before it is looked at.
            reached = shape if wrong else self.add(state, hist)
            yield f"{w}@{e} acks {(n, m)}", (reached, *rest, now_eaten), wrong


def take(trail: Trail, first: int, last: int, hist: tuple[int, ...]) -> Trail:
    """The runtime takes the next item, or an interrupt, and pulls again on anything else."""
    for x in range(first, last + 1):
        n = trail[-1][0]
        if x != n + 1 and not (x > n and hist[x - 1] < 0):
            break
        trail = (*trail, (x, hist[x - 1]))
    return trail


def put(table: tuple[tuple[Any, ...], ...], w: int, e: int, value: Any) -> tuple[tuple[Any, ...], ...]:
    row = (*table[w - 1][: e - 1], value, *table[w - 1][e:])
    return (row, table[1]) if w == 1 else (table[0], row)


def text_of(mark: int) -> bytes:
    """The product's marks have no sign: what is an interrupt says the item itself."""
    return b"%08d" % abs(mark)


def number_of(blob: bytes) -> int:
    mark = int(items.mark_of(blob))
    return -mark if items.read(blob).kind == "interrupt" else mark
