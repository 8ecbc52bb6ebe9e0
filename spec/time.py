"""The world of spec/Time.tla: one live and a clock, explored with the product's own functions.

Projection, in the order of the specification's variables:
    slot                of the current generation
    pend, out, deaths   appended and released, counted from acked; how often the item at the head was blamed
    at                  ms from now to the live's entry on the agenda, -1 for none
    note                the age of the note, -1 if there is none with the cursors of now; stalled: the same as a flag
    tries, starts       of the record; starts up to one more than doubles a wait
    since               the age of the commit up to `start_wait_max_ms`, while unclaimed and where reports say `busy`
    claimed             the age of the claim up to `backoff_max_ms`, where runtimes crash
    work                of the surroundings: a replica was told RECOVER and is at it
    still, win, born    of the surroundings, as the specification says
A tick is one ms. `now` is the same in every state, so that a tick makes every time of the record older instead, and an
age stops growing where no step compares it with anything larger. The current generation is always number 1, and the
item after `acked` too: no step compares these with anything but each other. Left out: what an item is, who pushed it,
histories, and the Worker, which has free slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dhsched.ownership import invariants, items
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.needs import needs
from dhsched.ownership.outcomes import Recover
from dhsched.ownership.state import EMPTY, Cursors, Live, Row, State, frozen
from dhsched.ownership.steps import STEPS
from dhsched.types import slot_tag
from spec.canonical import NOW, canonical_cell, canonical_worker
from spec.configuration import Configuration
from spec.explore import Move
from spec.shapes import boot, named, worker_id
from spec.stores import MAKE, POOL

LIVE = "t/L1"
WORKER = worker_id(1)
NONE = -1
CURRENT = slot_tag(LIVE, 1)


class Key(NamedTuple):
    """One state of the world: the number of the store's state, and the surroundings."""

    node: int
    work: bool = False
    still: int = 0
    win: int = NONE
    born: int = 0


@dataclass(slots=True)
class Effect:
    """What a step did to the store, and what it is for the surroundings: a commit, a claim, an ack and so on."""

    label: str
    to: int
    kind: str = ""


@dataclass(slots=True)
class Node:
    """One state of the store; `due`: a look is; `needs` and `owes` as in the specification."""

    state: State
    live: Live
    shape: tuple[Any, ...]
    wrong: tuple[str, ...]
    due: bool
    needs: bool
    owes: bool
    effects: list[Effect] | None = None


class Time:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = (
        *("slot", "pend", "out", "deaths", "at", "note", "stalled", "tries", "starts", "since", "claimed"),
        *("work", "still", "win", "born"),
    )

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        self.c = configuration
        self.on = configuration.on
        self.strict = strict
        self.limits = Limits(
            claim_wait_ms=self.c["ClaimWait"],
            ack_wait_ms=self.c["AckWait"],
            start_wait_max_ms=self.c["StartWaitMax"],
            lease_ms=self.c["Lease"],
            backoff_max_ms=self.c["BackoffMax"],
            poison_max=self.c["PoisonMax"],
        )
        self.starts_max = 2 + next(n for n in range(20) if self.c["Lease"] << n >= self.c["BackoffMax"])
        self.bounds = self.bounds_of()
        self.nodes: list[Node] = []
        self.node_of: dict[Any, int] = {}

    def bounds_of(self) -> dict[str, int]:
        """How long a generation may stand still, by the state of its slot, and for how long it must to be replaced."""
        claim, ack, longest = self.c["ClaimWait"], self.c["AckWait"], self.c["BackoffMax"]
        lapsed = sum(min(longest, self.c["Lease"] << n) for n in range(self.c["Lapses"]))
        starting = 2 * claim + ("busy" in self.on) * (self.c["StartWaitMax"] - 1)
        bounds = {"starting": starting, "running": ack + max(ack, claim), "vacant": longest}
        return {slot: bound + lapsed for slot, bound in bounds.items()}

    # -- the search's questions

    def initial(self) -> Key:
        state = EMPTY
        arguments = {"name": "w1", "boot": boot(1), "pool": POOL, "capacity": 4}
        state, _ = STEPS["register_worker"](state, NOW, self.limits, **arguments)
        state, _ = STEPS["report"](state, NOW, self.limits, worker=WORKER, boot=boot(1))
        create = {"cause": "create", "create": MAKE, "operation": "first"}
        state, _ = STEPS["place"](state, NOW, self.limits, live=LIVE, candidates=(WORKER,), **create)
        return Key(self.add(state))

    def projection(self, key: Key) -> tuple[Any, ...]:
        return (*self.nodes[key.node].shape, *key[1:])

    def problems(self, key: Key) -> Iterator[str]:
        node = self.nodes[key.node]
        slot, still = node.shape[0], key.still
        yield from node.wrong
        names = {"starting": "Claimed", "running": "Replaced", "vacant": "Restarted"}
        if still > self.bounds[slot]:
            yield f"{names[slot]}: {slot} for {still} ticks without progress; {self.bounds[slot]} are allowed"
        period = self.c["ClaimWait"] if slot == "starting" else self.c["AckWait"]
        note = node.shape[self.variables.index("note")]
        if node.live.stalled is not None and (still < period or NONE < note < period):
            yield f"Patient: stalled after {still} ticks, {note} after the note; a period has {period}"
        if key.born > self.c["Most"]:
            yield f"Paced: {key.born} generations in {self.c['Window']} ticks without an ack"

    def moves(self, key: Key) -> Iterator[Move]:
        node = self.nodes[key.node]
        if node.effects is None:
            node.effects = [*self.effects(node)]
        for effect in node.effects:
            if effect.kind == "tick":
                if not key.work:
                    yield effect.label, self.ticked(key, node, effect.to), ()
            elif effect.kind in ("look", "recover"):
                if not key.work:
                    yield effect.label, key._replace(node=effect.to, work=effect.kind == "recover"), ()
            elif effect.kind == "commit":
                if key.work:
                    yield from self.committed(key, effect)
            else:
                yield effect.label, self.went_on(key, node, effect), ()
        if key.work and (not node.needs or node.live.tries <= self.c["Lapses"]):
            yield "the replica that was told dies", key._replace(work=False), ()

    # -- the books of the surroundings

    def ticked(self, key: Key, node: Node, to: int) -> Key:
        still = min(key.still + 1, 1 + max(self.bounds.values())) if node.owes else 0
        if key.win == NONE or key.win + 1 == self.c["Window"]:
            return Key(to, key.work, still)
        return Key(to, key.work, still, key.win + 1, key.born)

    def committed(self, key: Key, effect: Effect) -> Iterator[Move]:
        after = key._replace(node=effect.to, work=False, still=0)
        if "counted" in self.on and key.win != NONE:
            yield effect.label, after._replace(born=key.born + 1), ()
            return
        yield effect.label, after, ()
        if "counted" in self.on:
            yield f"{effect.label}, counted from here", after._replace(win=0, born=1), ()

    def went_on(self, key: Key, node: Node, effect: Effect) -> Key:
        after = key._replace(node=effect.to)
        if effect.kind == "ack":
            return Key(effect.to, key.work)
        moved = effect.kind in ("claim", "crash") or (effect.kind == "busy" and node.live.active and not node.needs)
        return after._replace(still=0) if moved else after

    # -- nodes

    def add(self, state: State) -> int:
        state = self.canonical(state)
        shape = self.shape_of(state)
        found = self.node_of.get(shape)
        if found is None:
            live, s = state.lives[LIVE], Draft(state, NOW, self.limits)
            owes = live.active is None or live.appended > live.acked
            wrong = named(invariants.of_state(state))
            found = self.node_of[shape] = len(self.nodes)
            due = shape[self.variables.index("at")] == 0
            self.nodes.append(Node(state, live, shape, wrong, due, needs(s, LIVE) is not None, owes))
        elif self.strict and self.nodes[found].state != state:
            raise AssertionError(f"the projection loses something:\n{self.nodes[found].state}\n{state}")
        return found

    def shape_of(self, state: State) -> tuple[Any, ...]:
        live = state.lives[LIVE]
        at = state.agenda.get(live.priority, {}).get(LIVE)
        claimed, starting = live.current.claimed_at, live.active is None
        return (
            state.slots[WORKER][CURRENT],
            live.appended,
            live.released,
            live.suspect[1] if live.suspect else 0,
            NONE if at is None else at - NOW,
            NOW - live.note[1] if live.note else NONE,
            live.stalled is not None,
            live.tries,
            live.starts,
            NOW - live.current.committed_at if starting else 0,
            NOW - claimed if claimed else NONE,
        )

    def canonical(self, state: State) -> State:
        """The representative of the states that are like this one: numbers from 1, ages no older than matters."""
        live = state.lives[LIVE]
        [(tag, slot)] = state.slots[WORKER].items()
        assert tag == slot_tag(LIVE, live.epoch), f"{tag} is not the slot of {live.generation}"
        return replace(
            state,
            cell=canonical_cell(state.cell),
            lives=frozen({LIVE: self.canonical_live(live, vacant=slot == "vacant")}),
            workers=frozen({WORKER: canonical_worker(state.workers[WORKER])}),
            slots=frozen({WORKER: frozen({CURRENT: slot})}),
            changed=frozen({}),
            slot_revs=frozen({}),
        )

    def canonical_live(self, live: Live, *, vacant: bool) -> Live:
        pend, out = live.appended - live.acked, live.released - live.acked
        stands = Cursors(1, 0)
        counts = "crashes" in self.on
        age = min(NOW - live.current.committed_at, self.c["StartWaitMax"]) if "busy" in self.on else 0
        if live.active is not None or vacant:
            age = 0
        claimed = 0
        if counts and live.active is not None:
            claimed = max(live.current.claimed_at, NOW - self.c["BackoffMax"])
        period = max(self.c["ClaimWait"], self.c["AckWait"])
        return Live(
            digital_id=live.digital_id,
            room=live.room,
            priority=live.priority,
            immovable=live.immovable,
            fingerprint=live.fingerprint,
            metadata=live.metadata,
            epoch=1,
            issued=1,
            selected=live.selected,
            active=live.active,
            pull_no=0,
            controller="",
            state=live.state,
            current=Row(1, live.selected, "create", "", NOW - age, claimed),
            appended=pend,
            released=out,
            pending=(items.stored("text", b"", False),) * pend,
            note=(stands, max(live.note[1], NOW - period)) if live.note and live.note[0] == live.cursors else None,
            stalled=stands if live.stalled == live.cursors else None,
            suspect=(1, live.suspect[1]) if live.suspect else None,
            starts=min(live.starts, self.starts_max) if counts else 0,
            tries=live.tries,
            created_at=NOW,
            seen=(0, NOW),
        )

    # -- steps

    def effects(self, node: Node) -> Iterator[Effect]:
        live = node.live
        me: dict[str, Any] = {"live": LIVE, "worker": WORKER, "epoch": 1}
        if not node.due:
            yield Effect("a tick", self.add(self.older(node.state)), "tick")
        if live.appended < self.c["Items"]:
            yield self.step(node, "append", "append_input", live=LIVE, kind="text", payload=b"", request="r")
        if "interrupts" in self.on:
            yield self.step(node, "interrupt", "append_input", live=LIVE, kind="interrupt", payload=b"", request="r")
        kind = "claim" if node.shape[0] == "starting" else ""
        yield self.step(node, "pull", "pull", kind, after=0, controller="c", **me)
        for n in range(1, live.appended + 1):
            yield self.step(node, f"release {n}", "release_input", pull_no=0, after=live.released, credit=n, **me)
            if n <= live.released and live.active is not None:
                yield self.step(node, f"ack {n}", "ack_input", "ack", n=n, **me)
        if "busy" in self.on and live.note is not None:
            busy = self.step(node, "report busy", "report", "busy", worker=WORKER, boot=boot(1), busy=[CURRENT])
            yield busy if self.nodes[busy.to] is not node else replace(busy, kind="")
        if "crashes" in self.on and node.shape[0] != "vacant":
            yield self.step(node, "crash", "depart", "crash", worker=WORKER, live=LIVE, number=1)
        yield from self.of_replicas(node)

    def of_replicas(self, node: Node) -> Iterator[Effect]:
        state, outcome = STEPS["look"](node.state, NOW, self.limits, live=LIVE)
        if node.due or state.lives[LIVE] != node.live:
            yield Effect(f"look: {outcome}", self.add(state), "recover" if isinstance(outcome, Recover) else "look")
        arguments = {"cause": "recover", "expected": 1, "candidates": (WORKER,), "operation": "new"}
        state, _ = STEPS["place"](node.state, NOW, self.limits, live=LIVE, **arguments)
        if state.lives[LIVE].epoch != 1:
            yield Effect("place", self.add(state), "commit")

    def step(self, node: Node, label: str, name: str, is_a: str = "", **arguments: Any) -> Effect:
        state, _ = STEPS[name](node.state, NOW, self.limits, **arguments)
        return Effect(label, self.add(state), is_a)

    def older(self, state: State) -> State:
        """The same state, one tick later."""
        live = state.lives[LIVE]
        row = live.current
        claimed = row.claimed_at - 1 if row.claimed_at else 0
        live = replace(
            live,
            note=(live.note[0], live.note[1] - 1) if live.note else None,
            current=replace(row, committed_at=row.committed_at - 1, claimed_at=claimed),
        )
        agenda = {number: earlier(entries) for number, entries in state.agenda.items()}
        return replace(state, lives=frozen({LIVE: live}), agenda=frozen(agenda))


def earlier(entries: Any) -> Any:
    return frozen({live: at - 1 for live, at in entries.items()})
