"""The world of spec/Input.tla: the input of one live, explored with the product's own functions.

Projection, in the order of the specification's variables:
    epoch, issued, sel, active, pull, slot, st      of the live's record; active as a flag; slot of its generation
    appended, released, acked, signs, boundary, suspect     of the record; signs are the pending items' first bytes
    moving, hold        the move's number, or 0; hold: -1 none, -2 the next boundary
    sent                the last n accepted from the one producer, 0 once the live has ended
    after, got          of the surroundings: the controller's cursor for the latest pull (-1: nobody serves it), and
                        the last item that the current generation's runtime has
    taken, dropped      of the surroundings: which items whoever may ack them has had, and which the store gave up
    due, note, stalled  on the agenda; whether there is a note, a stall, that equals the cursors
Left out: what canonical.py leaves out; Workers (two, ready, with a free slot: spec/ownership.py explores them).

Who acts here: one producer; one controller and one runtime, for the latest pull of the current generation; and, at any
time, everybody from before, whose steps must change nothing. A loss is one step: the Worker expires, the live is
recovered on the other one, the Worker comes back. Slots that depart are given back at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dhsched.ownership import invariants
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Ended, Items, Pulling, Stale
from dhsched.ownership.state import EMPTY, Live, State
from dhsched.ownership.steps import STEPS
from dhsched.types import slot_tag
from spec.canonical import NOW, aged, canonical
from spec.configuration import Configuration
from spec.explore import Move
from spec.shapes import boot, named, worker_id, worker_number
from spec.stores import MAKE, MAKE_MORTAL, POOL

LIVE = "t/L1"
PRODUCER = "p"
NONE = -1
NEXT_ONE = -2

Flags = tuple[bool, ...]
Key = tuple[int, int, int, Flags, Flags]


@dataclass(slots=True)
class Effect:
    """What a step did: to the store, to the controller and the runtime, and which items the runtime was handed."""

    label: str
    to: int
    after: int
    got: int
    wrong: tuple[str, ...] = ()
    handed: range = range(0)
    acks: bool = False
    at_boundary: bool = False


@dataclass(slots=True)
class Node:
    """One state of the store."""

    state: State
    live: Live
    shape: tuple[Any, ...]
    wrong: tuple[str, ...]
    effects: list[Effect] | None = None
    around: dict[tuple[int, int], list[Effect]] = field(default_factory=dict)


class Input:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = (
        *("epoch", "issued", "sel", "active", "pull", "slot", "st"),
        *("appended", "released", "acked", "signs", "boundary", "suspect", "moving", "hold", "sent"),
        *("due", "note", "stalled", "after", "got", "taken", "dropped"),
    )

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        self.c = configuration
        self.on = configuration.on
        self.strict = strict
        self.items: int = self.c["Items"]
        self.limits = Limits(poison_max=self.c["PoisonMax"])
        self.nodes: list[Node] = []
        self.node_of: dict[Any, int] = {}

    # -- the search's questions

    def initial(self) -> Key:
        state = EMPTY
        for w in (1, 2):
            arguments = {"name": f"w{w}", "boot": boot(w), "pool": POOL, "capacity": 4}
            state, _ = STEPS["register_worker"](canonical(state), NOW, self.limits, **arguments)
            state, _ = STEPS["report"](state, NOW, self.limits, worker=worker_id(w), boot=boot(w))
        make = MAKE_MORTAL if "lifetimes" in self.on else MAKE
        create = {"cause": "create", "create": make, "operation": "first"}
        state, _ = STEPS["place"](state, NOW, self.limits, live=LIVE, candidates=(worker_id(1),), **create)
        nothing = (False,) * self.items
        return self.add(state), NONE, 0, nothing, nothing

    def problems(self, key: Key) -> Iterator[str]:
        index, _, _, taken, dropped = key
        node = self.nodes[index]
        yield from node.wrong
        for x in range(1, min(node.live.acked, self.items) + 1):
            if not taken[x - 1] and not dropped[x - 1]:
                yield f"I6: item {x} is settled; its runtime never had it, and nothing counts it as dropped"
        if sum(dropped) != node.live.dropped:
            yield f"I6: {sum(dropped)} items were given up, {node.live.dropped} are counted"

    def projection(self, key: Key) -> tuple[Any, ...]:
        index, after, got, taken, dropped = key
        return (*self.nodes[index].shape, after, got, taken, dropped)

    def moves(self, key: Key) -> Iterator[Move]:
        index, after, got, _, _ = key
        node = self.nodes[index]
        if node.effects is None:
            node.effects = list(self.store_effects(node))
        for effect in node.effects:
            yield self.settle(key, effect)
        if (after, got) not in node.around:
            node.around[after, got] = list(self.effects_around(node, after, got))
        for effect in node.around[after, got]:
            yield self.settle(key, effect)

    def settle(self, key: Key, effect: Effect) -> Move:
        """Keep the books: who has which item, and what the store gave up."""
        index, after, got, taken, dropped = key
        old, new = self.nodes[index].live, self.nodes[effect.to].live
        wrong = effect.wrong
        if effect.at_boundary and new.epoch != old.epoch and any(taken[old.acked :]):
            wrong = (*wrong, "Repeat: the move waited for the boundary, and an item is in the runtime's hands")
        given_up = range(0) if effect.acks else range(old.acked + 1, new.acked + 1)
        over = new.epoch != old.epoch or new.active is None
        now_taken = tuple(
            (had or x in effect.handed) and x not in given_up and (x <= new.acked or not over)
            for x, had in enumerate(taken, 1)
        )
        now_dropped = tuple(gone or x in given_up for x, gone in enumerate(dropped, 1))
        after, got = (NONE, 0) if over else (effect.after, effect.got)
        if effect.after == KEEP:
            after, got = (NONE, 0) if over else (key[1], key[2])
        return effect.label, (effect.to, after, got, now_taken, now_dropped), wrong

    # -- nodes

    def add(self, state: State) -> int:
        state = self.cleaned(state)
        shape = shape_of(state)
        # How many were dropped is not projected: which ones is (`dropped`), and `problems` compares the two.
        found = self.node_of.get((shape, state.lives[LIVE].dropped))
        if found is None:
            state = canonical(state)
            wrong = (*invariants.of_state(state), *self.wrong_with(state))
            found = self.node_of[shape, state.lives[LIVE].dropped] = len(self.nodes)
            self.nodes.append(Node(state, state.lives[LIVE], shape, named(wrong)))
        elif self.strict and not alike(self.nodes[found].state, canonical(state)):
            raise AssertionError(f"the projection loses something:\n{self.nodes[found].state}\n{state}")
        return found

    def cleaned(self, state: State) -> State:
        """Workers give back what departs at once."""
        for worker, table in state.slots.items():
            for tag, slot in table.items():
                if slot == "departing":
                    number = int(tag.rpartition("@")[2])
                    arguments = {"worker": worker, "live": LIVE, "number": number}
                    state, _ = STEPS["depart"](state, NOW, self.limits, **arguments)
        return state

    def wrong_with(self, state: State) -> Iterator[str]:
        live = state.lives[LIVE]
        if live.state != "ended" and live.producers.get(PRODUCER, (0,))[0] != live.appended:
            yield f"Once: {live.appended} items are stored of {live.producers.get(PRODUCER)} sent"
        passing = [
            (w, e, p)
            for w in (1, 2)
            for e in range(1, live.issued + 1)
            for p in range(self.c["MaxPull"] + 2)
            if not isinstance(self.released(state, w, e, p, 0, 1)[1], (Stale, Ended))
        ]
        if len(passing) > 1:
            yield f"I2: input may be released to {passing}"

    # -- steps that need nobody in particular

    def store_effects(self, node: Node) -> Iterator[Effect]:
        live = node.live
        yield from self.producing(node, live)
        yield from self.ending_generations(node, live)
        if "moves" in self.on:
            yield from self.planning(node, live)
        if "closing" in self.on:
            yield from self.step(node, "end", "end_live", live=LIVE)
            yield from self.step(node, "end after what is pending", "end_live", live=LIVE, after_pending=True)
        if "lifetimes" in self.on and live.state == "open":
            state, _ = STEPS["look"](aged(node.state, LIVE, outlived=True), NOW, self.limits, live=LIVE)
            yield from self.effect(node, "look, lifetime over", state)
        if "looks" in self.on and live.state != "ended":
            yield from self.looking(node, live)
        yield from self.from_before(node, live)

    def producing(self, node: Node, live: Live) -> Iterator[Effect]:
        if live.appended >= self.items:
            return
        sent = live.producers.get(PRODUCER, (0,))[0]
        # Repeated numbers, the next one, and one too many.
        for n in range(1, sent + 3):
            for sign in ("t", "T") if "boundaries" in self.on else ("t",):
                arguments = {"kind": "text", "payload": b"", "boundary": sign == "T", "producer": PRODUCER, "n": n}
                yield from self.step(node, f"append {sign} as {n}", "append_input", live=LIVE, **arguments)
        if "interrupts" in self.on:
            arguments = {"kind": "interrupt", "payload": b"", "producer": PRODUCER, "n": sent + 1}
            yield from self.step(node, "interrupt", "append_input", live=LIVE, **arguments)

    def ending_generations(self, node: Node, live: Live) -> Iterator[Effect]:
        if "crashes" in self.on:
            arguments = {"worker": live.selected, "live": LIVE, "number": live.epoch}
            yield from self.step(node, "crash", "depart", **arguments)
        for w in (1, 2):
            arguments = {"cause": "recover", "expected": live.epoch, "candidates": (worker_id(w),)}
            yield from self.step(node, f"recover on {w}", "place", live=LIVE, operation="new", **arguments)
        if "losses" in self.on and live.state != "ended":
            yield from self.loss(node, live)

    def loss(self, node: Node, live: Live) -> Iterator[Effect]:
        """The Worker is silent; its live is recovered on the other one; then it reports again."""
        lost, other = live.selected, worker_id(3 - worker_number(live.selected))
        state, _ = STEPS["expire_worker"](node.state, NOW, self.limits, worker=lost, beat=1)
        arguments = {"cause": "recover", "expected": live.epoch, "candidates": (other,)}
        state, _ = STEPS["place"](state, NOW, self.limits, live=LIVE, operation="new", **arguments)
        state, _ = STEPS["report"](state, NOW, self.limits, worker=lost, boot=node.state.workers[lost].boot)
        yield from self.effect(node, f"{lost} is lost, recover on {other}", state)

    def planning(self, node: Node, live: Live) -> Iterator[Effect]:
        target = worker_id(3 - worker_number(live.selected))
        yield from self.step(node, "reserve", "reserve", live=LIVE, expected=live.epoch, candidates=(target,))
        if live.move is None:
            return
        yield from self.step(node, "hold", "hold", live=LIVE, number=live.move.number)
        yield from self.step(node, "cancel the move", "cancel", live=LIVE, number=live.move.number)
        arguments = {"cause": "rebalance", "expected": live.epoch, "candidates": (target,), "operation": "new"}
        for at_boundary in (True, False):
            label = "place at the boundary" if at_boundary else "place, forced"
            for effect in self.step(node, label, "place", live=LIVE, at_boundary=at_boundary, **arguments):
                yield replace(effect, at_boundary=at_boundary)

    def looking(self, node: Node, live: Live) -> Iterator[Effect]:
        for expired in (False, True) if live.move else (False,):
            for ripe in (False, True) if live.note else (False,):
                state, _ = STEPS["look"](
                    aged(node.state, LIVE, expired=expired, ripe=ripe), NOW, self.limits, live=LIVE
                )
                yield from self.effect(node, f"look{', move expired' * expired}{', note ripe' * ripe}", state)
        said = {"worker": live.selected, "boot": node.state.workers[live.selected].boot}
        yield from self.step(node, "report busy", "report", busy=[slot_tag(LIVE, live.epoch)], **said)

    def from_before(self, node: Node, live: Live) -> Iterator[Effect]:
        """Acks of older generations, and acks of what was never released: nothing may come of them."""
        older = [(w, e) for w in (1, 2) for e in range(1, live.epoch)]
        for w, e in (*older, (worker_number(live.selected), live.epoch)):
            for n in range(live.released + 1 if e == live.epoch else 1, live.appended + (2 if e != live.epoch else 1)):
                arguments = {"worker": worker_id(w), "epoch": e, "n": n}
                for effect in self.step(node, f"ack {n} by {w}@{e}", "ack_input", live=LIVE, **arguments):
                    yield replace(effect, acks=True)

    # -- steps of the controller and the runtime

    def effects_around(self, node: Node, after: int, got: int) -> Iterator[Effect]:
        live = node.live
        if live.state == "ended":
            return
        yield from self.pulls(node, live, after, got)
        for n in range(1, min(got, live.released) + 1):
            arguments = {"worker": live.selected, "epoch": live.epoch, "n": n}
            for effect in self.step(node, f"ack {n}", "ack_input", live=LIVE, **arguments):
                yield replace(effect, after=after, got=got, acks=True)
        if after != NONE:
            for credit in range(1, self.c["Credit"] + 1):
                yield from self.release(node, live, after, got, credit)

    def pulls(self, node: Node, live: Live, after: int, got: int) -> Iterator[Effect]:
        """The runtime pulls; or a pull arrives that nobody waits for, late or sent twice, with an item of any age."""
        if live.pull_no >= self.c["MaxPull"]:
            return
        ghosts = range(live.released + 1) if "ghosts" in self.on else ()
        for cursor, ghost in ((got, False), *((cursor, True) for cursor in ghosts)):
            arguments = {"worker": live.selected, "epoch": live.epoch, "after": cursor, "controller": "c"}
            state, outcome = STEPS["pull"](node.state, NOW, self.limits, live=LIVE, **arguments)
            if isinstance(outcome, Pulling):
                label = f"pull after {cursor}{', which nobody waits for' * ghost}"
                for effect in self.effect(node, label, state):
                    told = NONE if ghost else outcome.after
                    yield replace(effect, after=told, got=max(got, told))

    def release(self, node: Node, live: Live, after: int, got: int, credit: int) -> Iterator[Effect]:
        w, e, p = worker_number(live.selected), live.epoch, live.pull_no
        state, outcome = self.released(node.state, w, e, p, after, credit)
        if not isinstance(outcome, Items):
            return
        again = self.released(state, w, e, p, after, credit)
        first, last = outcome.first, outcome.first + len(outcome.items) - 1
        wrong = []
        if again != (state, outcome):
            wrong.append(f"Order: asked again after {after}, the store hands out {again[1]}, not {outcome}")
        if first > max(after, live.acked) + 1:
            wrong.append(f"Order: asked for what comes after {after}, the store begins with {first}")
        interrupts = outcome.items[0][:1] in (b"I", b"J")
        for had in range(last - first + 2):
            label = f"release {first} to {last} with credit {credit}, {had} arrive"
            skips = had > 0 and first > got + 1 and not interrupts
            skipped = [f"Order: the runtime has {got} and is handed {first}"] if skips else []
            for effect in self.effect(node, label, state):
                yield replace(
                    effect,
                    after=after if had == 0 else last if first + had - 1 == last else NONE,
                    got=got if had == 0 else max(got, first + had - 1),
                    handed=range(first, first + had),
                    wrong=(*effect.wrong, *wrong, *skipped),
                )

    def released(self, state: State, w: int, e: int, p: int, after: int, credit: int) -> tuple[State, Any]:
        arguments = {"worker": worker_id(w), "epoch": e, "pull_no": p, "after": after, "credit": credit}
        return STEPS["release_input"](state, NOW, self.limits, live=LIVE, **arguments)

    # -- the model

    def step(self, node: Node, label: str, name: str, **arguments: Any) -> Iterator[Effect]:
        after, _ = STEPS[name](node.state, NOW, self.limits, **arguments)
        if after is node.state:
            return
        epoch = next((arguments[key] for key in ("expected", "epoch", "number") if key in arguments), None)
        wrong = invariants.old_work(node.state, after, LIVE, epoch) if epoch is not None else []
        yield from self.effect(node, label, after, wrong)

    def effect(self, node: Node, label: str, after: State, wrong: list[str] | None = None) -> Iterator[Effect]:
        if after.lives[LIVE].issued > self.c["MaxN"] or after.lives[LIVE].appended > self.items:
            return
        wrong = [*(wrong or []), *invariants.of_step(node.state, after)]
        yield Effect(label, self.add(after), KEEP, KEEP, named(wrong))


KEEP = -3
"""The controller and the runtime go on as they were."""


def shape_of(state: State) -> tuple[Any, ...]:
    live = state.lives[LIVE]
    move = live.move
    hold = NONE if move is None or move.hold is None else NEXT_ONE if move.hold == "next" else move.hold
    return (
        live.epoch,
        live.issued,
        worker_number(live.selected),
        live.active is not None,
        live.pull_no,
        state.slots.get(live.selected, {}).get(slot_tag(LIVE, live.epoch), "none"),
        live.state,
        live.appended,
        live.released,
        live.acked,
        tuple(chr(item[0]) for item in live.pending),
        live.at_boundary,
        live.suspect or (0, 0),
        move.number if move else 0,
        hold,
        live.producers.get(PRODUCER, (0,))[0],
        LIVE in state.agenda.get(live.priority, {}),
        live.note is not None and live.note[0] == live.cursors,
        live.stalled is not None and live.stalled == live.cursors,
    )


def alike(one: State, other: State) -> bool:
    """Equal but for why items were dropped, and the dead letters."""

    def plain(state: State) -> State:
        live = replace(state.lives[LIVE], dropped_interrupt=0, dropped_end=0, dropped_poison=0, dead=())
        return replace(state, lives={LIVE: live})

    return plain(one) == plain(other)
