"""The world of spec/DHSched.tla: lives, Workers and their agents, explored with the product's own functions.

Projection, in the order of the specification's variables and fields (canonical.py says what is left out):
    store.lives[l]      st: none, or the model's state; epoch; issued; sel = selected; active; pull = pull_no;
                        target, number, hold = the move's, hold as a flag; note, stalled: whether there is one that
                        equals the cursors; due: on the agenda; waits: in waiting:<pool>
    store.slots[w][l][n]     the state of slot l@n in the Worker's table
    store.workers[w]    st: none, new (never reported), up, gone, over (forgotten); mode; lost
    store.base, .floor, .term    epoch_base, epoch_floor, term
    agents[w]           proc: off, on, dead; table, with running shown as starting: a claim is no news to an agent;
                        runs: the phase of each runtime; fin: finished, as far as the table still has it; said: the
                        departs it has sent, which may arrive from then on; late, fresh: a table on its way (no, new,
                        old: against the one it has), where the configuration wants it, and with it done: everything
                        it ever finished
    released[l]         epoch, pull and Worker of the latest release that was granted (invariants.Releases)
    trouble             how often something went wrong, where the configuration counts it
Derived, and therefore not projected, but checked in every state by invariants.counters: load, starting, cutovers,
room. Without meaning here: all that belongs to input (spec/input.py).

The store's steps do not depend on agents, so each store state is stepped through once and its edges are kept; the
same goes for each state of an agent. That is what makes the product of all of them quick to search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from dhsched.ownership import agent as agency
from dhsched.ownership import invariants
from dhsched.ownership.agent import Agent
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.model import STEPS, Create
from dhsched.ownership.needs import needs
from dhsched.ownership.outcomes import Committed, Ended, Stale, Wake
from dhsched.ownership.state import EMPTY, Live, State, Worker, frozen
from dhsched.types import SlotState, slot_tag

from spec.canonical import NOW, aged, canonical
from spec.configuration import Configuration
from spec.explore import Move

POOL = "p"
MAKE = Create(digital_id="d", fingerprint="f")
OWNED = ("starting", "running", "vacant")
VERBS = ("cordon", "uncordon", "drain", "undrain")

Table = tuple[tuple[str, ...], ...]
Key = tuple[int, tuple[int, ...], tuple[tuple[int, int, int], ...], int]


@dataclass(slots=True)
class Edge:
    """A step of the store: where it leads, and what must be so outside the store for it to happen."""

    label: str
    to: int
    wrong: tuple[str, ...]
    trouble: bool = False
    sender: tuple[int, int, int] | None = None  # The (Worker, live, number) that must be finished: depart.
    worker: int = 0  # The Worker that must have a process: report.
    boot: int = 0  # The Worker that starts: register.


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
    grants: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wire:
    """What lies between an agent and the store: departs it said; where tables may be slow, one on its way.

    With the latter goes all that the agent ever finished, because it may forget.
    """

    said: frozenset[str] = frozenset()
    table: Table | None = None
    fresh: str = "no"
    done: frozenset[str] = frozenset()


@dataclass(slots=True)
class AgentNode:
    """One state of an agent: its process and the product's own `Agent`."""

    proc: str
    agent: Agent
    wire: Wire
    shape: tuple[Any, ...]
    wrong: tuple[str, ...]
    edges: list[tuple[str, int, bool]] | None = None
    taken: dict[Table, int] = field(default_factory=dict)


class Ownership:
    """`World` for spec/explore.py."""

    variables = ("store", "agents", "released", "trouble")

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        """`strict` compares whole states wherever two have the same projection: it must lose nothing."""
        self.c = configuration
        self.strict = strict
        self.on = configuration.on
        self.lives = range(1, self.c["NL"] + 1)
        self.workers = range(1, self.c["NW"] + 1)
        self.numbers = range(1, self.c["Top"] + 1)
        self.devices: int = self.c["ND"]
        self.trouble_max: int = self.c["MaxTrouble"]
        self.numbers_max: int = self.c["MaxN"]
        self.limits = Limits(term_step=self.c["Step"], cutovers_max=self.c["Cutovers"])
        self.live_ids = [live_id(l) for l in self.lives]
        self.worker_ids = [worker_id(w) for w in self.workers]
        self.tags = [[slot_tag(live, n) for n in self.numbers] for live in self.live_ids]
        self.stores: list[StoreNode] = []
        self.store_of: dict[Any, int] = {}
        self.agents: list[AgentNode] = []
        self.agent_of: dict[Any, int] = {}

    # -- the search's questions

    def initial(self) -> Key:
        state = EMPTY
        for w in range(1, self.devices + 1):
            state = canonical(self.register(state, w))
            state, _ = STEPS["report"](state, NOW, self.limits, worker=worker_id(w), boot=boot(w))
        store = self.add_store(state, frozenset(range(1, self.devices + 1)))
        capacity = Agent(self.c["Cap"])
        agents = tuple(self.add_agent("on" if w <= self.devices else "off", capacity, Wire()) for w in self.workers)
        return store, agents, tuple((0, 0, 0) for _ in self.lives), 0

    def problems(self, key: Key) -> Iterator[str]:
        store, agents, _, _ = key
        yield from self.stores[store].wrong
        for w, index in enumerate(agents):
            yield from self.agents[index].wrong
            runs, (st, _, _) = self.agents[index].agent.runs, self.stores[store].shape[2][w]
            slots = self.stores[store].loads[w]
            if st in ("new", "up") and len(runs) > slots:
                yield f"Slots: {worker_id(w + 1)} runs {sorted(runs)} and has {slots} slots"

    def projection(self, key: Key) -> tuple[Any, ...]:
        store, agents, released, trouble = key
        return (
            store_by_name(self.stores[store].shape),
            tuple(by_name(AGENT, self.agents[index].shape) for index in agents),
            released,
            trouble,
        )

    def moves(self, key: Key) -> Iterator[Move]:
        store, agents, released, trouble = key
        node = self.stores[store]
        if node.edges is None:
            node.edges = list(self.store_edges(node))
        tired = self.trouble_max > 0 and trouble >= self.trouble_max
        worse = trouble + 1 if self.trouble_max else 0
        for edge in node.edges:
            if edge.trouble and tired:
                continue
            after = worse if edge.trouble else trouble
            if edge.sender is None and not edge.worker and not edge.boot:
                yield edge.label, (edge.to, agents, released, after), edge.wrong
            elif "agents" in self.on or edge.boot:
                yield from self.with_agent(edge, key, after)
            else:
                yield edge.label, (edge.to, agents, released, after), edge.wrong
        for l, w, e, p in node.grants:
            yield self.release(key, l, w, e, p)
        if "agents" in self.on:
            yield from self.agent_moves(key, tired, worse)

    def with_agent(self, edge: Edge, key: Key, trouble: int) -> Iterator[Move]:
        """A step that only an agent can cause."""
        store, agents, released, _ = key
        if edge.sender is not None:
            w, l, n = edge.sender
            if slot_tag(live_id(l), n) in self.agents[agents[w - 1]].wire.said:
                yield edge.label, (edge.to, agents, released, trouble), edge.wrong
        elif edge.boot:
            if "agents" not in self.on or self.agents[agents[edge.boot - 1 - self.devices]].proc == "dead":
                begun = self.add_agent("on", Agent(self.c["Cap"]), Wire())
                yield edge.label, (edge.to, changed(agents, edge.boot, begun), released, trouble), edge.wrong
        elif self.agents[agents[edge.worker - 1]].proc != "off":
            yield edge.label, (edge.to, agents, released, trouble), edge.wrong
            if self.agents[agents[edge.worker - 1]].proc == "on":
                table = self.stores[store].tables[edge.worker - 1]
                took = changed(agents, edge.worker, self.take(agents[edge.worker - 1], table))
                yield edge.label + ", table taken", (edge.to, took, released, trouble), edge.wrong
                if "late" in self.on:
                    node = self.agents[agents[edge.worker - 1]]
                    slow = self.add_agent("on", node.agent, replace(node.wire, table=table, fresh="new"))
                    sent = changed(agents, edge.worker, slow)
                    yield edge.label + ", table on its way", (edge.to, sent, released, trouble), edge.wrong

    def release(self, key: Key, l: int, w: int, e: int, p: int) -> Move:
        """A release was granted: the trace must go on from the one before."""
        store, agents, released, trouble = key
        latest = released[l - 1]
        trace = invariants.Releases({live_id(l): (latest[0], latest[1], str(latest[2]))} if latest[0] else {})
        wrong = tuple(trace.release(live_id(l), str(w), e, p))
        epoch, pull, worker = trace.latest[live_id(l)]
        after = changed(released, l, (epoch, pull, int(worker)))
        return f"release {live_id(l)} to {worker_id(w)}@{e} pull {p}", (store, agents, after, trouble), wrong

    def agent_moves(self, key: Key, tired: bool, worse: int) -> Iterator[Move]:
        store, agents, released, trouble = key
        for w in self.workers:
            node = self.agents[agents[w - 1]]
            if node.proc != "on":
                continue
            if node.edges is None:
                node.edges = list(self.agent_edges(node))
            for label, to, costs in node.edges:
                if not (costs and tired):
                    after = worse if costs else trouble
                    yield f"{worker_id(w)} {label}", (store, changed(agents, w, to), released, after), ()

    # -- nodes

    def add_store(self, state: State, registered: frozenset[int], near: StoreNode | None = None) -> int:
        """The node of this state. `near` is the node it was reached from: most of the two is the same."""
        shape = self.shape_of_store(state, registered, near)
        found = self.store_of.get(shape)
        if found is None:
            state = canonical(state)
            wrong = (*invariants.of_state(state), *self.grant_problems(state))
            tables = tuple(agent_table(shape[1][w - 1]) for w in self.workers)
            found = self.store_of[shape] = len(self.stores)
            loads = tuple(len(state.slots.get(worker, {})) for worker in self.worker_ids)
            self.stores.append(StoreNode(state, registered, shape, named(wrong), tables, loads))
        elif self.strict and self.stores[found].state != canonical(state):
            raise AssertionError(f"the projection loses something:\n{self.stores[found].state}\n{canonical(state)}")
        return found

    def add_agent(self, proc: str, agent: Agent, wire: Wire) -> int:
        """Keep what decides: what it finished and no longer has in its table is forgotten (agent.take_table)."""
        if proc == "dead":
            agent, wire = Agent(agent.capacity), Wire(said=wire.said)
        else:
            table = {tag: "starting" if slot == "running" else slot for tag, slot in agent.table.items()}
            finished = frozenset(tag for tag in agent.finished if tag in table)
            agent = replace(agent, table=frozen(table), finished=finished, term=0, rev=0)
            wire = replace(wire, said=frozenset(tag for tag in wire.said if tag in table))
        shape = (
            proc,
            self.by_tag(agent.table, "none"),
            self.by_tag(agent.runs, "none"),
            self.by_tag(dict.fromkeys(agent.finished, True), False),
            self.by_tag(dict.fromkeys(wire.said, True), False),
            wire.table or self.by_tag({}, "none"),
            wire.fresh,
            self.by_tag(dict.fromkeys(wire.done, True), False),
        )
        found = self.agent_of.get(shape)
        if found is None:
            wrong = [*invariants.of_agents({"agent": agent})]
            finished = agent.finished | wire.done
            wrong += [f"Final: {tag} departed and runs" for tag in sorted(finished) if tag in agent.runs]
            found = self.agent_of[shape] = len(self.agents)
            self.agents.append(AgentNode(proc, agent, wire, shape, tuple(wrong)))
        return found

    def take(self, index: int, table: Table) -> int:
        """The agent takes the store's table; one that is still on its way is older from then on."""
        node = self.agents[index]
        if table not in node.taken:
            took = agency.take_table(node.agent, term=0, rev=0, table=self.by_name(table))
            wire = replace(node.wire, fresh="old") if node.wire.fresh == "new" else node.wire
            node.taken[table] = self.add_agent("on", took, wire)
        return node.taken[table]

    def by_name(self, table: Table) -> Mapping[str, SlotState]:
        """A table as an agent is sent it."""
        slots: dict[str, Any] = {}
        for tags, row in zip(self.tags, table, strict=True):
            slots.update({tag: slot for tag, slot in zip(tags, row, strict=True) if slot != "none"})
        return slots

    # -- shapes

    def shape_of_store(self, state: State, registered: frozenset[int], near: StoreNode | None) -> tuple[Any, ...]:
        old = near.state if near else EMPTY
        lives = []
        for l, live in enumerate(self.live_ids, 1):
            record = state.lives.get(live)
            due = record is not None and live in state.agenda.get(record.priority, {})
            if near and record is old.lives.get(live) and near.shape[0][l - 1][DUE] == due:
                lives.append(near.shape[0][l - 1])
            else:
                lives.append(shape_of_live(record, due))
        slots, workers = [], []
        for w, worker in enumerate(self.worker_ids, 1):
            table, is_registered = state.slots.get(worker), w in registered
            same = near is not None and table is old.slots.get(worker)
            slots.append(near.shape[1][w - 1] if near and same else self.by_tag(table or {}, "none"))
            machine = state.workers.get(worker)
            same = near is not None and machine is old.workers.get(worker) and is_registered == (w in near.registered)
            workers.append(near.shape[2][w - 1] if near and same else shape_of_worker(machine, is_registered))
        cell = state.cell
        return tuple(lives), tuple(slots), tuple(workers), cell.epoch_base, cell.epoch_floor, cell.term

    def by_tag(self, values: Mapping[str, Any], empty: Any) -> tuple[tuple[Any, ...], ...]:
        """A map from tags as rows of numbers, one row per live."""
        return tuple(tuple([values.get(tag, empty) for tag in row]) for row in self.tags)

    # -- the store's steps

    def store_edges(self, node: StoreNode) -> Iterator[Edge]:
        state = node.state
        for l in self.lives:
            record = state.lives.get(live_id(l))
            if record is None:
                yield from self.creates(node, l)
                continue
            yield from self.places(node, l, record)
            yield from self.looks(node, l, record)
            yield from self.pulls(node, l, record)
            if "moves" in self.on:
                yield from self.planned(node, l, record)
            if "ends" in self.on:
                yield from self.step(node, f"end {live_id(l)}", "end_live", live=live_id(l))
            if "trace" in self.on:
                node.grants = [*node.grants, *self.granted(state, l)]
        for w in self.workers:
            yield from self.worker_steps(node, w)
        if "terms" in self.on and state.cell.term < self.c["MaxTerm"]:
            yield from self.step(node, "new term", "new_term", term=state.cell.term, seen_term=state.cell.term)

    def step(
        self,
        node: StoreNode,
        label: str,
        name: str,
        *,
        state: State | None = None,
        trouble: bool = False,
        sender: tuple[int, int, int] | None = None,
        reporter: int = 0,
        **arguments: Any,
    ) -> Iterator[Edge]:
        """Run one step of the model, on the node's state or on `state`, and say what came of it, unless nothing did."""
        before = node.state if state is None else state
        after, outcome = STEPS[name](before, NOW, self.limits, **arguments)
        if after is before and not reporter:
            return
        bound = min(after.cell.epoch_floor + self.numbers_max, len(self.numbers))
        if any(record.issued > bound for record in after.lives.values()):
            return
        to = self.add_store(after, node.registered, node)
        wrong = invariants.of_step(node.state, after)
        epoch = next((arguments[key] for key in ("expected", "epoch", "number") if key in arguments), None)
        if epoch is not None:
            wrong += invariants.old_work(node.state, after, arguments["live"], epoch)
        if name == "place":
            wrong += self.check_place(node.state, after, outcome, arguments)
        if self.stores[to] is not node or reporter or wrong:
            yield Edge(label, to, named(wrong), trouble, sender, reporter)

    def check_place(self, before: State, after: State, outcome: Any, arguments: dict[str, Any]) -> list[str]:
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
        if old and arguments["because"] == "recover" and needs(Draft(before, NOW, self.limits), live) is None:
            wrong.append(f"Need: {live} was at {old.generation}, needed nothing, and was recovered")
        return wrong

    def creates(self, node: StoreNode, l: int) -> Iterator[Edge]:
        common: dict[str, Any] = {"live": live_id(l), "operation": "new", "because": "create", "create": MAKE}
        for w in self.workers:
            label = f"create {live_id(l)} on {worker_id(w)}"
            yield from self.step(node, label, "place", candidates=(worker_id(w),), **common)
        yield from self.step(node, f"create {live_id(l)} in the Pool", "place", pools=(POOL,), **common)

    def places(self, node: StoreNode, l: int, record: Live) -> Iterator[Edge]:
        live = live_id(l)
        common: dict[str, Any] = {"live": live, "operation": "new"}
        everywhere = tuple(worker_id(w) for w in self.workers)
        for because in self.reasons():
            for w in self.workers:
                if because == "rebalance" and not (record.move and record.move.target == worker_id(w)):
                    continue
                yield from self.waited(
                    node,
                    f"place {live} from {record.epoch} on {worker_id(w)}, {because}",
                    because=because,
                    expected=record.epoch,
                    candidates=(worker_id(w),),
                    **common,
                )
            if because != "rebalance":
                yield from self.waited(
                    node,
                    f"place {live} from {record.epoch} in the Pool, {because}",
                    because=because,
                    expected=record.epoch,
                    pools=(POOL,),
                    **common,
                )
        # Work from before: whatever it asks for, it is too late.
        for expected in range(record.issued + 2):
            if expected != record.epoch:
                label = f"place {live} from {expected}, reassign"
                arguments = {"because": "reassign", "expected": expected, "candidates": everywhere, **common}
                yield from self.step(node, label, "place", **arguments)

    def reasons(self) -> list[str]:
        groups = {"reassign": "reassign", "drain": "modes", "rebalance": "moves"}
        return ["recover", *(because for because, group in groups.items() if group in self.on)]

    def waited(self, node: StoreNode, label: str, **arguments: Any) -> Iterator[Edge]:
        """A place; who joins or leaves `waiting` by it is followed only where the configuration wants it."""
        for edge in self.step(node, label, "place", **arguments):
            live = arguments["live"]
            before, after = node.state.lives[live], self.stores[edge.to].state.lives[live]
            if "waits" in self.on or before.epoch != after.epoch or edge.wrong:
                yield edge

    def looks(self, node: StoreNode, l: int, record: Live) -> Iterator[Edge]:
        live = live_id(l)
        if record.state == "ended":
            later = aged(node.state, live, forgotten=True)
            yield from self.step(node, f"look {live}, sweep", "look", live=live, state=later)
            return
        for expired in (False, True) if record.move else (False,):
            for ripe in (False, True) if record.note else (False,):
                later = aged(node.state, live, expired=expired, ripe=ripe)
                after, outcome = STEPS["look"](later, NOW, self.limits, live=live)
                if isinstance(outcome, Wake) and "stalls" not in self.on:
                    continue
                stalls = after.lives[live].stalled is not None and record.stalled is None
                label = f"look {live}{', move expired' * expired}{', note ripe' * stalls}"
                yield from self.step(node, label, "look", live=live, state=later, trouble=stalls)

    def pulls(self, node: StoreNode, l: int, record: Live) -> Iterator[Edge]:
        if record.pull_no >= self.c["MaxPull"]:
            return
        for w in self.workers:
            for e in range(1, record.issued + 1):
                arguments = {"live": live_id(l), "worker": worker_id(w), "epoch": e, "after": 0, "controller": "c"}
                yield from self.step(node, f"pull {live_id(l)} {worker_id(w)}@{e}", "pull", **arguments)

    def granted(self, state: State, l: int) -> list[tuple[int, int, int, int]]:
        """Every (Worker, epoch, pull) that a release of this live's input would pass for now."""
        record = state.lives[live_id(l)]
        passing = []
        for w in self.workers:
            for e in range(1, record.issued + 1):
                for p in range(self.c["MaxPull"] + 2):
                    arguments: dict[str, Any] = {"live": live_id(l), "worker": worker_id(w), "epoch": e, "pull_no": p}
                    _, outcome = STEPS["release_input"](state, NOW, self.limits, after=0, credit=1, **arguments)
                    if not isinstance(outcome, (Stale, Ended)):
                        passing.append((l, w, e, p))
        return passing

    def grant_problems(self, state: State) -> Iterator[str]:
        for l in self.lives:
            if live_id(l) in state.lives and state.lives[live_id(l)].active is not None:
                passing = self.granted(state, l)
                if len(passing) > 1:
                    yield f"I2: {live_id(l)} may be released to {[f'{worker_id(w)}@{e} {p}' for _, w, e, p in passing]}"
                for _, w, e, _ in passing:
                    if e <= state.cell.epoch_floor:
                        yield f"Floor: {live_id(l)} may be released to {worker_id(w)}@{e}, below the floor"

    def planned(self, node: StoreNode, l: int, record: Live) -> Iterator[Edge]:
        live = live_id(l)
        for w in self.workers:
            label = f"reserve {live} on {worker_id(w)}"
            arguments = {"live": live, "expected": record.epoch, "candidates": (worker_id(w),)}
            yield from self.step(node, label, "reserve", trouble="timely" in self.on, **arguments)
        for number in range(1, record.issued + 1):
            yield from self.step(node, f"hold {live} for {number}", "hold", live=live, number=number)
            yield from self.step(node, f"cancel {live} {number}", "cancel", live=live, number=number)

    def worker_steps(self, node: StoreNode, w: int) -> Iterator[Edge]:
        state, worker = node.state, worker_id(w)
        spared = "spared" in self.on and w == self.c["NW"]
        if "gone" in self.on and w not in node.registered and w - self.devices in node.registered:
            yield self.registration(node, w)
        if w not in node.registered:
            return
        record = state.workers.get(worker)
        yield from self.reports(node, w, record)
        yield from self.departs(node, w)
        if spared or record is None:
            return
        if "losses" in self.on:
            arguments = {"worker": worker, "beat": record.beat}
            yield from self.step(node, f"expire {worker}", "expire_worker", trouble=True, **arguments)
        if "modes" in self.on:
            for verb in VERBS:
                yield from self.step(node, f"{verb} {worker}", "set_worker", worker=worker, verb=verb)
        if "gone" in self.on:
            yield from self.step(node, f"exit {worker}", "set_worker", worker=worker, verb="exit", trouble=True)
            yield from self.step(node, f"reap {worker}", "set_worker", worker=worker, verb="reap")

    def reports(self, node: StoreNode, w: int, record: Worker | None) -> Iterator[Edge]:
        """A sign of life, also from a boot that is over; busy with its lives, where stalls are explored."""
        if record is None or record.gone:
            return
        arguments = {"worker": worker_id(w), "boot": boot(w)}
        yield from self.step(node, f"report {worker_id(w)}", "report", reporter=w, **arguments)
        if "stalls" in self.on:
            mine = [
                slot_tag(live, r.epoch)
                for live, r in node.state.lives.items()
                if r.state != "ended" and r.selected == worker_id(w)
            ]
            yield from self.step(node, f"report {worker_id(w)} busy", "report", reporter=w, busy=mine, **arguments)

    def departs(self, node: StoreNode, w: int) -> Iterator[Edge]:
        """Without agents any Worker may say depart of anything, at any time."""
        for l in self.lives:
            for n in self.numbers:
                slot = node.state.slots.get(worker_id(w), {}).get(slot_tag(live_id(l), n))
                counted = "agents" not in self.on and slot != "departing"
                arguments = {"worker": worker_id(w), "live": live_id(l), "number": n}
                label = f"depart {live_id(l)}@{n} {worker_id(w)}"
                yield from self.step(node, label, "depart", sender=(w, l, n), trouble=counted, **arguments)

    def registration(self, node: StoreNode, w: int) -> Edge:
        after = self.register(node.state, w)
        to = self.add_store(after, node.registered | {w}, node)
        wrong = named(invariants.of_step(node.state, after))
        return Edge(f"register {worker_id(w)} for {worker_id(w - self.devices)}", to, wrong, boot=w)

    def register(self, state: State, w: int) -> State:
        replaces = worker_id(w - self.devices) if w > self.devices else ""
        arguments = {"name": f"w{w}", "boot": boot(w), "pool": POOL, "capacity": self.c["Cap"], "replaces": replaces}
        after, outcome = STEPS["register_worker"](state, NOW, self.limits, **arguments)
        assert outcome.worker == worker_id(w), f"a boot after a new term has another id: {outcome}"
        return after

    # -- an agent's steps

    def agent_edges(self, node: AgentNode) -> Iterator[tuple[str, int, bool]]:
        """Whatever `reconcile` would do now, one action at a time; and a runtime may end at any time."""
        agent, wire = node.agent, node.wire
        for action in agency.reconcile(agent):
            after = wire
            if isinstance(action, agency.Stop):
                done = agency.stopping(agent, action.tag)
            elif isinstance(action, agency.Depart):
                done = agency.departed(agent, action.tag)
                after = self.finished(replace(wire, said=wire.said | {action.tag}), action.tag)
            else:
                done = agency.begun(agent, action)
            yield f"{type(action).__name__.lower()}s {action.tag}", self.add_agent("on", done, after), False
        for tag, phase in agent.runs.items():
            to = self.add_agent("on", agency.over(agent, tag), self.finished(wire, tag))
            yield f"{'stopped' if phase == 'stopping' else 'loses'} {tag}", to, phase != "stopping"
        if wire.table is not None:
            # Revisions are explored only as older and newer.
            mine, theirs = (1, 2) if wire.fresh == "new" else (2, 1)
            took = agency.take_table(replace(agent, rev=mine), term=0, rev=theirs, table=self.by_name(wire.table))
            if took.rev == theirs:
                yield "takes a late table", self.add_agent("on", took, replace(wire, table=None, fresh="no")), False
        if "gone" in self.on:
            yield "dies", self.add_agent("dead", agent, wire), False

    def finished(self, wire: Wire, tag: str) -> Wire:
        return replace(wire, done=wire.done | {tag}) if "late" in self.on else wire


# -- names and shapes


def live_id(l: int) -> str:
    return f"t/L{l}"


def worker_id(w: int) -> str:
    return f"w{w}#1"


def boot(w: int) -> str:
    return f"boot-{w}"


def worker_number(worker: str | None) -> int:
    return int(worker[1 : worker.index("#")]) if worker else 0


def changed(values: tuple[Any, ...], position: int, value: Any) -> tuple[Any, ...]:
    return (*values[: position - 1], value, *values[position:])


def agent_table(slots: Table) -> Table:
    return tuple(tuple("starting" if slot == "running" else slot for slot in row) for row in slots)


def named(problems: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Every problem begins with the name of its invariant; the counters and moves of invariants.py have theirs here."""
    names = ("I", "Final", "Need", "Floor", "Once", "Order", "Repeat")
    return tuple(
        problem
        if problem.startswith(names)
        else f"Moves: {problem}"
        if problem.startswith("moves")
        else f"Counters: {problem}"
        for problem in problems
    )


STORE = ("lives", "slots", "workers", "base", "floor", "term")
LIVE = tuple("st epoch issued sel active pull target number hold note stalled due waits".split())
WORKER = ("st", "mode", "lost")
AGENT = ("proc", "table", "runs", "fin", "said", "late", "fresh", "done")
DUE = LIVE.index("due")


@cache
def by_name(fields: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a record in the order of its fields' names: as tlc.py reads records."""
    return tuple(value for _, value in sorted(zip(fields, values, strict=True), key=lambda field: field[0]))


@cache
def store_by_name(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    lives, slots, workers, *cell = shape
    inner = (tuple(by_name(LIVE, live) for live in lives), slots, tuple(by_name(WORKER, w) for w in workers), *cell)
    return by_name(STORE, inner)


NO_LIVE = ("none", 0, 0, 0, 0, 0, 0, 0, False, False, False, False, False)


def shape_of_live(record: Live | None, due: bool) -> tuple[Any, ...]:
    if record is None:
        return NO_LIVE
    move = record.move
    return (
        record.state,
        record.epoch,
        record.issued,
        worker_number(record.selected),
        worker_number(record.active),
        record.pull_no,
        worker_number(move.target) if move else 0,
        move.number if move else 0,
        move is not None and move.hold is not None,
        record.note is not None and record.note[0] == record.cursors,
        record.stalled is not None and record.stalled == record.cursors,
        due,
        bool(record.waits),
    )


def shape_of_worker(record: Worker | None, registered: bool) -> tuple[Any, ...]:
    if record is None:
        return ("over" if registered else "none", "ready", False)
    st = "gone" if record.gone else "up" if record.beat else "new"
    return (st, record.mode, record.lost)
