"""The world of spec/DHSched.tla: lives, Workers and their agents, explored with the product's own functions.

Projection, in the order of the specification's variables and fields (canonical.py says what is left out):
    store.lives[l]      st: none, or the model's state; epoch; issued; sel = selected; active; pull = pull_no;
                        target, number, hold = the move's, hold as a flag; note, stalled: whether there is one that
                        equals the cursors; due: on the agenda; waits: in waiting:<pool>
    store.slots[w][l][n]     the state of slot l@n in the Worker's table
    store.workers[w]    st: none, new (never reported), up, gone, over (forgotten); mode; lost
    store.base, .floor, .term    epoch_base, epoch_floor, term
    store.home          the number in the name of the cell's home; 0 but in spec/homes.py
    agents[w]           proc: off, on, dead; table, with running shown as starting: a claim is no news to an agent;
                        runs: the phase of each runtime; fin: finished, as far as the table still has it; said: the
                        departs it has sent, which may arrive from then on; late, fresh: a table on its way (no, new,
                        old: against the one it has), where the configuration wants it, and with it done: everything
                        it ever finished
    released[l]         epoch, pull and Worker of the latest release that was granted (invariants.Releases)
    trouble             how often something went wrong, where the configuration counts it
Derived, and therefore not projected, but checked in every state by invariants.counters: load, starting, cutovers,
room. Without meaning here: all that belongs to input (spec/input.py). `bad` and `admitted` of the specification stay as
they are unless something is broken on purpose.

A state is a state of the store (stores.py), one of each agent (agents.py), and what stands between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dhsched.ownership import invariants
from spec.agents import Agents
from spec.configuration import Configuration
from spec.explore import Move
from spec.shapes import AGENT, by_name, changed, live_id, store_by_name, worker_id
from spec.stores import Edge, Stores

Key = tuple[int, tuple[int, ...], tuple[tuple[int, int, int], ...], int]
"""The store's state, each agent's, the latest release of each live, and how often something went wrong."""


class Ownership:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = ("store", "agents", "released", "trouble")

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        """`strict` compares whole states wherever two have the same projection: it must lose nothing."""
        self.on = configuration.on
        self.stores = Stores(configuration, strict=strict)
        self.agents = Agents(configuration)
        self.devices: int = configuration["ND"]
        self.trouble_max: int = configuration["MaxTrouble"]

    def initial(self) -> Key:
        agents = tuple(self.agents.new("on" if w <= self.devices else "off") for w in self.stores.workers)
        return self.stores.initial(), agents, tuple((0, 0, 0) for _ in self.stores.lives), 0

    def problems(self, key: Key) -> Iterator[str]:
        store, agents, _, _ = key
        node = self.stores.nodes[store]
        yield from node.wrong
        for w, index in enumerate(agents):
            agent = self.agents.nodes[index]
            yield from agent.wrong
            known = node.shape[2][w][0] in ("new", "up")
            if known and agent.agent.capacity == 1 and len(agent.agent.runs) > node.loads[w]:
                yield f"Slots: {worker_id(w + 1)} runs {sorted(agent.agent.runs)} and has {node.loads[w]} slots"

    def projection(self, key: Key) -> tuple[Any, ...]:
        store, agents, released, trouble = key
        return (
            store_by_name(self.stores.nodes[store].shape),
            tuple(by_name(AGENT, self.agents.nodes[index].shape) for index in agents),
            released,
            trouble,
        )

    def moves(self, key: Key) -> Iterator[Move]:
        store, agents, released, trouble = key
        node = self.stores.nodes[store]
        tired = self.trouble_max > 0 and trouble >= self.trouble_max
        worse = trouble + 1 if self.trouble_max else 0
        for edge in self.stores.edges(node):
            if edge.trouble and tired:
                continue
            after = worse if edge.trouble else trouble
            for label, agents_after in self.with_agents(edge, store, agents):
                yield label, (edge.to, agents_after, released, after), edge.wrong
        for grant in node.grants:
            yield self.release(key, *grant)
        if "agents" in self.on:
            for w, index in enumerate(agents, 1):
                if self.agents.nodes[index].proc == "on":
                    for label, to, costs in self.agents.edges(index):
                        if not (costs and tired):
                            after = worse if costs else trouble
                            yield f"{worker_id(w)} {label}", (store, changed(agents, w, to), released, after), ()

    def with_agents(self, edge: Edge, store: int, agents: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Whether the agents are such that this step can happen, and what comes of it for them."""
        explored = "agents" in self.on
        if edge.boot:
            if not explored or self.agents.nodes[agents[edge.boot - 1 - self.devices]].proc == "dead":
                yield edge.label, changed(agents, edge.boot, self.agents.new("on"))
        elif not explored or not (edge.sender or edge.reporter):
            yield edge.label, agents
        elif edge.sender:
            w, tag = edge.sender
            if tag in self.agents.nodes[agents[w - 1]].wire.said:
                yield edge.label, agents
        else:
            yield from self.answered(edge, store, agents)

    def answered(self, edge: Edge, store: int, agents: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """A report: its reply is lost, or brings the table at once, or late."""
        w = edge.reporter
        index, table = agents[w - 1], self.stores.nodes[store].tables[w - 1]
        yield edge.label, agents
        if self.agents.nodes[index].proc == "on":
            yield f"{edge.label}, table taken", changed(agents, w, self.agents.take(index, table))
            if "late" in self.on:
                yield f"{edge.label}, table on its way", changed(agents, w, self.agents.send(index, table))

    def release(self, key: Key, i: int, w: int, e: int, p: int) -> Move:
        """A release was granted: the trace must go on from the one before."""
        store, agents, released, trouble = key
        live, (epoch, pull, worker) = live_id(i), released[i - 1]
        trace = invariants.Releases({live: (epoch, pull, str(worker))} if epoch else {})
        wrong = tuple(trace.release(live, str(w), e, p))
        epoch, pull, name = trace.latest[live]
        after = changed(released, i, (epoch, pull, int(name)))
        return f"release {live} to {worker_id(w)}@{e} pull {p}", (store, agents, after, trouble), wrong
