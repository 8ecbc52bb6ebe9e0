"""The store's half of the world of spec/DHSched.tla: every state of the store, and every step that is possible there.

The store's steps do not depend on agents, so each state of the store is stepped through once and its edges are kept.
Every step is a call of the product's own function, with every argument that somebody could still be sending: numbers of
any age, the wrong Worker, a move that is over. Most change nothing, and that is what is being checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dhsched.ownership import invariants
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.needs import needs
from dhsched.ownership.outcomes import Committed, Ended, Stale, Wake
from dhsched.ownership.state import EMPTY, Live, State, Worker
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from dhsched.types import slot_tag
from spec.canonical import NOW, aged, canonical
from spec.configuration import Configuration
from spec.shapes import (
    DUE,
    Table,
    boot,
    for_agent,
    home_number,
    live_id,
    named,
    shape_of_live,
    shape_of_worker,
    worker_id,
)

POOL = "p"
MAKE = Create(digital_id="d", fingerprint="f")
MAKE_MORTAL = replace(MAKE, idle_ms=60_000, max_ms=60_000)
VERBS = ("cordon", "uncordon", "drain", "undrain")
GROUP_OF = {"reassign": "reassign", "drain": "modes", "rebalance": "moves"}
"""Which group of actions switches a reason to place on; recovery is always there."""

Arguments = dict[str, Any]
Grant = tuple[int, int, int, int]


@dataclass(slots=True)
class Edge:
    """A step of the store: where it leads, and what must be so outside the store for it to happen."""

    label: str
    step: str
    to: int
    wrong: tuple[str, ...]
    trouble: bool = False
    sender: tuple[int, str] | None = None  # The Worker that must have said depart, and of which tag.
    reporter: int = 0  # The Worker that must have a process.
    boot: int = 0  # The Worker that starts.


@dataclass(slots=True)
class StoreNode:
    """One state of the store. `registered` tells a boot that is over from one that never was."""

    state: State
    registered: frozenset[int]
    shape: tuple[Any, ...]
    wrong: tuple[str, ...]
    tables: tuple[Table, ...]
    loads: tuple[int, ...]
    edges: list[Edge] | None = None
    grants: list[Grant] = field(default_factory=list)


class Stores:
    """The states of the store that were reached so far, by number."""

    def __init__(self, configuration: Configuration, *, strict: bool) -> None:
        self.c = configuration
        self.on = configuration.on
        self.strict = strict
        self.lives = range(1, self.c["NL"] + 1)
        self.workers = range(1, self.c["NW"] + 1)
        self.numbers = range(1, self.c["Top"] + 1)
        self.devices: int = self.c["ND"]
        self.make = MAKE_MORTAL if "lifetimes" in self.on else MAKE
        self.limits = Limits(term_step=self.c["Step"], cutovers_max=self.c["Cutovers"])
        self.live_ids = [live_id(i) for i in self.lives]
        self.worker_ids = [worker_id(w) for w in self.workers]
        self.tags = [[slot_tag(live, n) for n in self.numbers] for live in self.live_ids]
        self.nodes: list[StoreNode] = []
        self.node_of: dict[Any, int] = {}

    def initial(self) -> int:
        state = EMPTY
        for w in range(1, self.devices + 1):
            state = canonical(self.register(state, w))
            state, _ = STEPS["report"](state, NOW, self.limits, worker=worker_id(w), boot=boot(w))
        return self.add(state, frozenset(range(1, self.devices + 1)))

    # -- nodes

    def add(self, state: State, registered: frozenset[int], near: StoreNode | None = None) -> int:
        """The node of this state. `near` is the node it was reached from: most of the two is the same."""
        shape = self.shape_of(state, registered, near)
        found = self.node_of.get(shape)
        if found is None:
            state = canonical(state)
            wrong = (*invariants.of_state(state), *self.grant_problems(state))
            tables = tuple(for_agent(table) for table in shape[1])
            loads = tuple(len(state.slots.get(worker, {})) for worker in self.worker_ids)
            found = self.node_of[shape] = len(self.nodes)
            self.nodes.append(StoreNode(state, registered, shape, named(wrong), tables, loads))
        elif self.strict and self.nodes[found].state != canonical(state):
            raise AssertionError(f"the projection loses something:\n{self.nodes[found].state}\n{canonical(state)}")
        return found

    def shape_of(self, state: State, registered: frozenset[int], near: StoreNode | None) -> tuple[Any, ...]:
        """The projection. What is the very same object as in `near` has the same shape."""
        old = near.state if near else EMPTY
        lives, slots, workers = [], [], []
        for i, live in enumerate(self.live_ids):
            record = state.lives.get(live)
            due = record is not None and live in state.agenda.get(record.priority, {})
            if near and record is old.lives.get(live) and near.shape[0][i][DUE] == due:
                lives.append(near.shape[0][i])
            else:
                lives.append(shape_of_live(record, due))
        for w, worker in enumerate(self.worker_ids):
            table, is_registered = state.slots.get(worker), w + 1 in registered
            if near and table is old.slots.get(worker):
                slots.append(near.shape[1][w])
            else:
                slots.append(tuple(tuple([(table or {}).get(tag, "none") for tag in row]) for row in self.tags))
            machine = state.workers.get(worker)
            if near and machine is old.workers.get(worker) and is_registered == (w + 1 in near.registered):
                workers.append(near.shape[2][w])
            else:
                workers.append(shape_of_worker(machine, is_registered))
        cell = state.cell
        home = home_number(cell.home)
        return tuple(lives), tuple(slots), tuple(workers), cell.epoch_base, cell.epoch_floor, cell.term, home

    # -- steps

    def edges(self, node: StoreNode) -> list[Edge]:
        """Every step that is possible in this state."""
        if node.edges is None:
            node.edges = list(self.all_edges(node))
        return node.edges

    def all_edges(self, node: StoreNode) -> Iterator[Edge]:
        state = node.state
        for live in self.live_ids:
            record = state.lives.get(live)
            if record is None:
                yield from self.creates(node, live)
                continue
            yield from self.places(node, live, record)
            yield from self.looks(node, live, record)
            yield from self.pulls(node, live, record)
            if "moves" in self.on:
                yield from self.planned(node, live, record)
            if "ends" in self.on:
                yield from self.step(node, f"end {live}", "end_live", live=live)
            if "trace" in self.on:
                node.grants += self.granted(state, live)
        for w in self.workers:
            yield from self.worker_steps(node, w)
        if "terms" in self.on and state.cell.term < self.c["MaxTerm"]:
            yield from self.step(node, "new term", "new_term", term=state.cell.term)

    def step(
        self,
        node: StoreNode,
        label: str,
        name: str,
        *,
        later: State | None = None,
        trouble: bool = False,
        sender: tuple[int, str] | None = None,
        reporter: int = 0,
        **arguments: Any,
    ) -> Iterator[Edge]:
        """Run one step of the model, on the node's state or on it aged, and say what came of it, unless nothing did."""
        before = node.state if later is None else later
        after, outcome = STEPS[name](before, NOW, self.limits, **arguments)
        if after is before and not reporter:
            return
        first = max(after.cell.epoch_floor, home_number(after.cell.home) * self.c["Step"])
        bound = min(first + self.c["MaxN"], self.c["Top"])
        if any(record.issued > bound for record in after.lives.values()):
            return
        to = self.add(after, node.registered, node)
        wrong = invariants.of_step(node.state, after)
        epoch = next((arguments[key] for key in ("expected", "epoch", "number") if key in arguments), None)
        if epoch is not None:
            wrong += invariants.old_work(node.state, after, arguments["live"], epoch)
        if name == "place":
            wrong += self.check_place(node.state, after, outcome, arguments)
        if self.nodes[to] is not node or reporter or wrong:
            yield Edge(label, name, to, named(wrong), trouble, sender, reporter)

    def check_place(self, before: State, after: State, outcome: Any, arguments: Arguments) -> list[str]:
        """What a place must keep besides the state: said twice is done once; a recovery has its reason."""
        if not isinstance(outcome, Committed) or outcome.again:
            return []
        wrong = []
        again, _ = STEPS["place"](after, NOW, self.limits, **arguments)
        if again != after:
            wrong.append(f"I0: place {arguments['operation']} was done twice")
        live = arguments["live"]
        old, new = before.lives.get(live), after.lives[live]
        if new.epoch <= before.cell.epoch_floor:
            wrong.append(f"I0: {live} was given {new.epoch}, the floor is {before.cell.epoch_floor}")
        if old and arguments["cause"] == "recover" and needs(Draft(before, NOW, self.limits), live) is None:
            wrong.append(f"Need: {live} was at {old.generation}, needed nothing, and was recovered")
        return wrong

    def creates(self, node: StoreNode, live: str) -> Iterator[Edge]:
        common: Arguments = {"live": live, "operation": "new", "cause": "create", "create": self.make}
        for worker in self.worker_ids:
            yield from self.step(node, f"create {live} on {worker}", "place", candidates=(worker,), **common)
        yield from self.step(node, f"create {live} in the Pool", "place", pools=(POOL,), **common)

    def places(self, node: StoreNode, live: str, record: Live) -> Iterator[Edge]:
        for cause in ("recover", *(cause for cause, group in GROUP_OF.items() if group in self.on)):
            wishes: list[tuple[str, Arguments]] = [(f"on {w}", {"candidates": (w,)}) for w in self.worker_ids]
            if cause == "rebalance":  # Moves are carried out, and nothing else is rebalanced.
                wishes = [wish for wish in wishes if record.move and wish[1]["candidates"] == (record.move.target,)]
            else:
                wishes.append(("in the Pool", {"pools": (POOL,)}))
            if cause == "recover":
                wishes.append(("for nobody", {}))
            for where, wish in wishes:
                label = f"place {live} from {record.epoch} {where}, {cause}"
                common: Arguments = {"live": live, "operation": "new", "cause": cause, "expected": record.epoch}
                for edge in self.step(node, label, "place", **common, **wish):
                    # Who joins or leaves `waiting` by it is followed only where the configuration wants it.
                    moved = self.nodes[edge.to].state.lives[live].epoch != record.epoch
                    if moved or edge.wrong or "waits" in self.on:
                        yield edge
        # Work from before: whatever it asks for, it is too late.
        late: Arguments = {"live": live, "operation": "new", "cause": "reassign", "candidates": self.worker_ids}
        for expected in range(record.issued + 2):
            if expected != record.epoch:
                label = f"place {live} from {expected}, reassign"
                yield from self.step(node, label, "place", expected=expected, **late)

    def looks(self, node: StoreNode, live: str, record: Live) -> Iterator[Edge]:
        if record.state == "ended":
            later = aged(node.state, live, forgotten=True)
            yield from self.step(node, f"look {live}, sweep", "look", live=live, later=later)
            return
        if "lifetimes" in self.on:
            later = aged(node.state, live, outlived=True)
            yield from self.step(node, f"look {live}, lifetime over", "look", live=live, later=later)
        for expired in (False, True) if record.move else (False,):
            for ripe in (False, True) if record.note else (False,):
                later = aged(node.state, live, expired=expired, ripe=ripe)
                after, outcome = STEPS["look"](later, NOW, self.limits, live=live)
                if isinstance(outcome, Wake) and "stalls" not in self.on:
                    continue
                stalls = after.lives[live].stalled is not None and record.stalled is None
                label = f"look {live}{', move expired' * expired}{', note ripe' * stalls}"
                yield from self.step(node, label, "look", live=live, later=later, trouble=stalls)

    def pulls(self, node: StoreNode, live: str, record: Live) -> Iterator[Edge]:
        if record.pull_no >= node.state.cell.pull_base + self.c["MaxPull"]:
            return
        for worker in self.worker_ids:
            for e in range(1, record.issued + 2):  # The last one was never issued: the store has forgotten it.
                sent: Arguments = {"live": live, "worker": worker, "epoch": e, "after": 0, "controller": "c"}
                yield from self.step(node, f"pull {live} {worker}@{e}", "pull", **sent)

    def granted(self, state: State, live: str) -> list[Grant]:
        """Every (Worker, epoch, pull) that a release of this live's input would pass for now."""
        passing = []
        for w, worker in enumerate(self.worker_ids, 1):
            for e in range(1, state.lives[live].issued + 1):
                for p in {*range(self.c["MaxPull"] + 2), state.lives[live].pull_no}:
                    sent: Arguments = {"live": live, "worker": worker, "epoch": e, "pull_no": p}
                    _, outcome = STEPS["release_input"](state, NOW, self.limits, after=0, credit=1, **sent)
                    if not isinstance(outcome, (Stale, Ended)):
                        passing.append((self.live_ids.index(live) + 1, w, e, p))
        return passing

    def grant_problems(self, state: State) -> Iterator[str]:
        for live, record in state.lives.items():
            if record.active is None:
                continue
            passing = self.granted(state, live)
            if len(passing) > 1:
                yield f"I2: {live} may be released to {[f'{worker_id(w)}@{e} {p}' for _, w, e, p in passing]}"
            for _, w, e, _ in passing:
                if e <= state.cell.epoch_floor:
                    yield f"Floor: {live} may be released to {worker_id(w)}@{e}, below the floor"

    def planned(self, node: StoreNode, live: str, record: Live) -> Iterator[Edge]:
        counted = "timely" in self.on
        for worker in self.worker_ids:
            wish: Arguments = {"live": live, "expected": record.epoch, "candidates": (worker,)}
            yield from self.step(node, f"reserve {live} on {worker}", "reserve", trouble=counted, **wish)
        for number in range(1, record.issued + 1):
            yield from self.step(node, f"hold {live} for {number}", "hold", live=live, number=number)
            yield from self.step(node, f"cancel {live} {number}", "cancel", live=live, number=number)

    # -- steps of Workers

    def worker_steps(self, node: StoreNode, w: int) -> Iterator[Edge]:
        worker = worker_id(w)
        if "gone" in self.on and w not in node.registered and w - self.devices in node.registered:
            after = self.register(node.state, w)
            to = self.add(after, node.registered | {w}, node)
            wrong = named(invariants.of_step(node.state, after))
            yield Edge(f"register {worker} for {worker_id(w - self.devices)}", "register_worker", to, wrong, boot=w)
        record = node.state.workers.get(worker)
        if record is not None:
            yield from self.reports(node, w, record)
        yield from self.departs(node, w)
        if record is None or ("spared" in self.on and w == self.c["NW"]):
            return
        if "losses" in self.on:
            silent: Arguments = {"worker": worker, "beat": record.beat}
            yield from self.step(node, f"expire {worker}", "expire_worker", trouble=True, **silent)
        if "modes" in self.on:
            for verb in VERBS:
                yield from self.step(node, f"{verb} {worker}", "set_worker", worker=worker, verb=verb)
        if "gone" in self.on:
            yield from self.step(node, f"exit {worker}", "set_worker", worker=worker, verb="exit", trouble=True)
            yield from self.step(node, f"reap {worker}", "set_worker", worker=worker, verb="reap")

    def register(self, state: State, w: int) -> State:
        """The next boot of a device, in the place of the one before.

        Its number must be above the floor. Every boot here has a name of its own, so the number tells nobody apart: the
        state is explored with the one that `worker_id` expects, as if the floor were put back after the registration.
        """
        replaces = worker_id(w - self.devices) if w > self.devices else ""
        new: Arguments = {
            "name": f"w{w}",
            "boot": boot(w),
            "pool": POOL,
            "capacity": self.c["Cap"],
            "replaces": replaces,
        }
        _, outcome = STEPS["register_worker"](state, NOW, self.limits, **new)
        assert int(outcome.worker.partition("#")[2]) > state.cell.epoch_floor, outcome
        below = replace(state, cell=replace(state.cell, epoch_floor=0))
        after, outcome = STEPS["register_worker"](below, NOW, self.limits, **new)
        assert outcome.worker == worker_id(w), outcome
        return replace(after, cell=replace(after.cell, epoch_floor=state.cell.epoch_floor))

    def reports(self, node: StoreNode, w: int, record: Worker) -> Iterator[Edge]:
        """A sign of life, also from a process that has died since; busy with its lives, where stalls are explored."""
        if record.gone:
            return
        worker = worker_id(w)
        yield from self.step(node, f"report {worker}", "report", reporter=w, worker=worker, boot=boot(w))
        if "stalls" in self.on:
            lives = node.state.lives.items()
            busy = [slot_tag(live, r.epoch) for live, r in lives if r.state != "ended" and r.selected == worker]
            said: Arguments = {"worker": worker, "boot": boot(w), "busy": busy}
            yield from self.step(node, f"report {worker} busy", "report", reporter=w, **said)

    def departs(self, node: StoreNode, w: int) -> Iterator[Edge]:
        """Without agents any Worker may say depart of anything, at any time."""
        worker = worker_id(w)
        table = node.state.slots.get(worker, {})
        for live, row in zip(self.live_ids, self.tags, strict=True):
            for number, tag in enumerate(row, 1):
                counted = "agents" not in self.on and table.get(tag) != "departing"
                said: Arguments = {"worker": worker, "live": live, "number": number}
                label = f"depart {tag} {worker}"
                yield from self.step(node, label, "depart", sender=(w, tag), trouble=counted, **said)
