"""The agents' half of the world of spec/DHSched.tla: every state of an agent, and what it can do next.

What an agent does is decided by dhsched.ownership.agent alone. Around it stands `Wire`: what it has said and what is on
its way to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dhsched.ownership import agent as agency
from dhsched.ownership import invariants
from dhsched.ownership.agent import Agent
from dhsched.ownership.state import frozen
from dhsched.types import SlotState, slot_tag
from spec.configuration import Configuration
from spec.shapes import Table, live_id


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
    """One state of an agent: its process (off, on, dead) and the product's own `Agent`."""

    proc: str
    agent: Agent
    wire: Wire
    shape: tuple[Any, ...]
    wrong: tuple[str, ...]
    edges: list[tuple[str, int, bool]] | None = None
    taken: dict[Table, int] = field(default_factory=dict)


class Agents:
    """The states of agents that were reached so far, by number."""

    def __init__(self, configuration: Configuration) -> None:
        self.on = configuration.on
        self.capacity: int = configuration["Cap"]
        numbers = range(1, configuration["Top"] + 1)
        self.tags = [[slot_tag(live_id(i), n) for n in numbers] for i in range(1, configuration["NL"] + 1)]
        self.nodes: list[AgentNode] = []
        self.node_of: dict[Any, int] = {}

    def new(self, proc: str) -> int:
        return self.add(proc, Agent(self.capacity), Wire())

    def add(self, proc: str, agent: Agent, wire: Wire) -> int:
        """Keep what decides: what it finished and no longer has in its table is forgotten (agent.take_table)."""
        if proc == "dead":
            agent, wire = Agent(agent.capacity), Wire(said=wire.said)
        else:
            table = {tag: "starting" if slot == "running" else slot for tag, slot in agent.table.items()}
            finished = frozenset(tag for tag in agent.finished if tag in table)
            agent = replace(agent, table=frozen(table), finished=finished, term=0, rev=0)
            wire = replace(wire, said=frozenset(tag for tag in wire.said if tag in table))
        shape = self.shape_of(proc, agent, wire)
        found = self.node_of.get(shape)
        if found is None:
            wrong = invariants.of_agents({"agent": agent})
            finished = agent.finished | wire.done
            wrong += [f"Final: {tag} departed and runs" for tag in sorted(finished) if tag in agent.runs]
            found = self.node_of[shape] = len(self.nodes)
            self.nodes.append(AgentNode(proc, agent, wire, shape, tuple(wrong)))
        return found

    def shape_of(self, proc: str, agent: Agent, wire: Wire) -> tuple[Any, ...]:
        return (
            proc,
            self.by_tag(agent.table, "none"),
            self.by_tag(agent.runs, "none"),
            self.by_tag(dict.fromkeys(agent.finished, True), False),
            self.by_tag(dict.fromkeys(wire.said, True), False),
            wire.table or self.by_tag({}, "none"),
            wire.fresh,
            self.by_tag(dict.fromkeys(wire.done, True), False),
        )

    def by_tag(self, values: Mapping[str, Any], empty: Any) -> tuple[tuple[Any, ...], ...]:
        """A map from tags as rows of numbers, one row per live."""
        return tuple(tuple([values.get(tag, empty) for tag in row]) for row in self.tags)

    def by_name(self, table: Table) -> Mapping[str, SlotState]:
        """A table as an agent is sent it."""
        slots: dict[str, Any] = {}
        for tags, row in zip(self.tags, table, strict=True):
            slots.update({tag: slot for tag, slot in zip(tags, row, strict=True) if slot != "none"})
        return slots

    # -- what can happen to an agent

    def take(self, index: int, table: Table) -> int:
        """The agent takes the store's table; one that is still on its way is older from then on."""
        node = self.nodes[index]
        if table not in node.taken:
            took = agency.take_table(node.agent, term=0, rev=0, table=self.by_name(table))
            wire = replace(node.wire, fresh="old") if node.wire.fresh == "new" else node.wire
            node.taken[table] = self.add("on", took, wire)
        return node.taken[table]

    def send(self, index: int, table: Table) -> int:
        """The store's table is on its way."""
        node = self.nodes[index]
        return self.add("on", node.agent, replace(node.wire, table=table, fresh="new"))

    def edges(self, index: int) -> list[tuple[str, int, bool]]:
        """What the agent can do next: a name, the state after it, and whether that is trouble."""
        node = self.nodes[index]
        if node.edges is None:
            node.edges = list(self.reconciles(node.agent, node.wire)) + list(self.suffers(node.agent, node.wire))
        return node.edges

    def reconciles(self, agent: Agent, wire: Wire) -> Iterator[tuple[str, int, bool]]:
        """Whatever `reconcile` would do now, one action at a time and in any order."""
        for action in agency.reconcile(agent):
            after = wire
            if isinstance(action, agency.Stop):
                done = agency.stopping(agent, action.tag)
            elif isinstance(action, agency.Depart):
                done = agency.departed(agent, action.tag)
                after = self.finished(replace(wire, said=wire.said | {action.tag}), action.tag)
            else:
                done = agency.begun(agent, action)
            yield f"{type(action).__name__.lower()}s {action.tag}", self.add("on", done, after), False

    def suffers(self, agent: Agent, wire: Wire) -> Iterator[tuple[str, int, bool]]:
        """A runtime ends, stopped or not; a table arrives late; the process dies, and its runtimes with it."""
        for tag, phase in agent.runs.items():
            to = self.add("on", agency.over(agent, tag), self.finished(wire, tag))
            yield f"{'stopped' if phase == 'stopping' else 'loses'} {tag}", to, phase != "stopping"
        if wire.table is not None:
            # Revisions are explored only as older and newer.
            mine, theirs = (1, 2) if wire.fresh == "new" else (2, 1)
            took = agency.take_table(replace(agent, rev=mine), term=0, rev=theirs, table=self.by_name(wire.table))
            if took.rev == theirs:
                yield "takes a late table", self.add("on", took, replace(wire, table=None, fresh="no")), False
        if "gone" in self.on:
            yield "dies", self.add("dead", agent, wire), False

    def finished(self, wire: Wire, tag: str) -> Wire:
        return replace(wire, done=wire.done | {tag}) if "late" in self.on else wire
