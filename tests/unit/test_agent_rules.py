"""The agent's rules: what it decides from a table, and that agents and store together never overrun a GPU.

First decisions, compared as lists. Then an agent alone under arbitrary tables. Then a closed loop: agents that obey
`reconcile` and the real model, with late, repeated and reordered messages between them, crashes, restarts and
partitions. A failure of the loop prints its seed and the command that repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.ownership import agent as rules
from dhsched.ownership import invariants, outcomes
from dhsched.ownership.agent import (
    Action,
    Agent,
    Depart,
    Phase,
    Prepare,
    Start,
    Stop,
    begun,
    departed,
    over,
    reconcile,
    stopping,
    take_table,
)
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Outcome
from dhsched.ownership.state import EMPTY, frozen
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from dhsched.types import SlotState, split_tag

L1, L2, M1, M2, N1 = "t/L@1", "t/L@2", "t/M@1", "t/M@2", "t/N@1"


def an_agent(
    *, capacity: int = 2, table: Mapping[str, SlotState], runs: Mapping[str, Phase] | None = None, finished: str = ""
) -> Agent:
    done = frozenset(finished.split())
    return Agent(capacity, 1, 1, table=frozen(table), runs=frozen(runs or {}), finished=done)


# -- decisions


DECISIONS: list[tuple[str, Agent, list[Action]]] = [
    ("nothing to do",
     an_agent(table={}), []),
    ("stop what departs, start what is new",
     an_agent(table={N1: "starting", L1: "departing"}, runs={L1: "running"}), [Stop(L1), Start(N1)]),
    ("no start before the old runtime is gone",
     an_agent(capacity=1, table={N1: "starting", L1: "departing"}, runs={L1: "running"}), [Stop(L1)]),
    ("a stopping runtime still counts, and is not stopped twice",
     an_agent(capacity=1, table={N1: "starting", L1: "departing"}, runs={L1: "stopping"}), []),
    ("depart once it is gone",
     an_agent(capacity=1, table={N1: "starting", L1: "departing"}, finished=L1), [Depart(L1), Start(N1)]),
    ("depart what was never started",
     an_agent(table={L1: "departing"}), [Depart(L1)]),
    ("start a running slot without a runtime",
     an_agent(table={L1: "running"}), [Start(L1)]),
    ("a crashed generation departs and never starts again",
     an_agent(table={L1: "running"}, finished=L1), [Depart(L1)]),
    ("never start a vacant one",
     an_agent(table={L1: "vacant"}), []),
    ("nor depart it: that was said",
     an_agent(table={L1: "vacant"}, finished=L1), []),
    ("stop a vacant one that runs",
     an_agent(table={L1: "vacant"}, runs={L1: "running"}), [Stop(L1)]),
    ("stop what the table does not have",
     an_agent(table={}, runs={L1: "running"}), [Stop(L1)]),
    ("prepared ones too",
     an_agent(table={}, runs={L1: "prepared"}), [Stop(L1)]),
    ("prepare a reserved one",
     an_agent(table={L1: "reserved"}), [Prepare(L1)]),
    ("prepared is prepared",
     an_agent(table={L1: "reserved"}, runs={L1: "prepared"}), []),
    ("a prepared one goes on when its turn comes",
     an_agent(table={L1: "starting"}, runs={L1: "prepared"}), [Start(L1)]),
    ("which needs no further capacity",
     an_agent(capacity=1, table={L1: "starting"}, runs={L1: "prepared"}), [Start(L1)]),
    ("owned before reserved: somebody waits for it",
     an_agent(capacity=1, table={L1: "reserved", M1: "starting"}), [Start(M1)]),
    ("recovered in place: the old generation first",
     an_agent(table={L2: "starting", M1: "running"}, runs={L1: "running", M1: "running"}), [Stop(L1)]),
    ("a preparation that failed gives its place back",
     an_agent(table={L1: "reserved"}, finished=L1), [Depart(L1)]),
]  # fmt: skip


@pytest.mark.parametrize(("agent", "decision"), [pytest.param(*row[1:], id=row[0]) for row in DECISIONS])
def test_reconcile(agent: Agent, decision: list[Action]) -> None:
    assert reconcile(agent) == decision


def test_an_older_table_is_ignored_and_one_of_a_later_term_is_not() -> None:
    agent = take_table(Agent(2), term=1, rev=7, table={L1: "starting"})
    assert take_table(agent, term=1, rev=6, table={}) == agent
    assert take_table(agent, term=1, rev=7, table={L1: "running"}).table == {L1: "running"}
    assert take_table(agent, term=2, rev=1, table={}).table == {}


def test_what_is_finished_is_remembered_while_the_store_still_names_it() -> None:
    agent = take_table(Agent(2), term=1, rev=1, table={L1: "running"})
    agent = over(begun(agent, Start(L1)), L1)
    agent = take_table(agent, term=1, rev=2, table={L1: "running", M1: "starting"})
    assert reconcile(agent) == [Depart(L1), Start(M1)]
    agent = departed(agent, L1)
    agent = take_table(agent, term=1, rev=3, table={L1: "vacant", M1: "starting"})
    assert reconcile(agent) == [Start(M1)]
    assert take_table(agent, term=1, rev=4, table={M1: "starting"}).finished == frozenset()


def test_a_slot_is_not_given_back_while_a_runtime_without_a_slot_still_holds_the_gpu() -> None:
    """L was wedged, recovered in place as L@2, and then moved away before the wedged runtime of L@1 let go.

    If the agent departed L@2, which it never ran, the store would see an empty Worker and send it live after live, none
    of which it could start while the old runtime holds the capacity: each would wait out two claim periods there.
    """
    agent = an_agent(capacity=1, table={L2: "departing"}, runs={L1: "stopping"})
    assert reconcile(agent) == []


# -- one agent, arbitrary tables

SLOTS: tuple[SlotState, ...] = ("reserved", "starting", "running", "vacant", "departing")
TABLES = st.dictionaries(st.sampled_from([L1, L2, M1, M2, N1]), st.sampled_from(SLOTS))
EVENTS = st.one_of(
    st.tuples(st.just("table"), st.integers(1, 3), st.integers(0, 9), TABLES),
    st.tuples(st.just("act"), st.integers(0, 6)),
    st.tuples(st.just("over"), st.integers(0, 9)),
)


def act(agent: Agent, action: Action) -> Agent:
    match action:
        case Start() | Prepare():
            return begun(agent, action)
        case Stop(tag):
            return stopping(agent, tag)
        case Depart(tag):
            return departed(agent, tag)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.lists(EVENTS, max_size=30))
def test_an_agent_never_runs_more_than_its_capacity_nor_starts_a_finished_generation(
    capacity: int, events: list[tuple[Any, ...]]
) -> None:
    agent = Agent(capacity)
    done: set[str] = set()
    seen: set[str] = set()
    dropped: set[str] = set()
    for kind, *values in events:
        if kind == "table":
            term, rev, table = values
            # The store's promise: a tag that it has dropped never comes back.
            table = {tag: slot for tag, slot in table.items() if tag not in dropped}
            later = take_table(agent, term=term, rev=rev, table=table)
            if later is not agent:
                dropped |= seen - set(table)
                seen |= set(table)
            agent = later
        elif kind == "act":
            for action in reconcile(agent)[: values[0]]:
                if isinstance(action, Start | Prepare):
                    assert action.tag not in done
                agent = act(agent, action)
                if isinstance(action, Depart):
                    assert action.tag not in agent.runs
                    done.add(action.tag)
                assert len(agent.runs) <= capacity
        elif agent.runs:
            tag = sorted(agent.runs)[values[0] % len(agent.runs)]
            agent = over(agent, tag)
            done.add(tag)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(1, 3), TABLES)
def test_an_agent_comes_to_rest_with_what_its_table_asks_for(capacity: int, table: dict[str, SlotState]) -> None:
    """Level-triggered: from one table alone it gets to where nothing is left to do, if runtimes stop when told."""
    agent = take_table(Agent(capacity), term=1, rev=1, table=table)
    for _ in range(10):
        for action in reconcile(agent):
            agent = act(agent, action)
        for tag in [tag for tag, phase in agent.runs.items() if phase == "stopping"]:
            agent = over(agent, tag)
        said = [tag for tag in agent.table if tag in agent.finished and tag not in agent.runs]
        left: dict[str, SlotState] = {tag: slot for tag, slot in agent.table.items() if tag not in said}
        agent = take_table(agent, term=1, rev=agent.rev + 1, table=left)
    assert reconcile(agent) == []
    wanted = {tag for tag, slot in table.items() if slot in ("reserved", "starting", "running")}
    assert set(agent.runs) <= wanted
    assert len(agent.runs) == min(capacity, len(wanted))


# -- agents and store together

LIMITS = Limits(claim_wait_ms=50, lease_ms=10, move_expires_ms=100, boots_max=10**6, ended_ttl_ms=200, cutovers_max=2)
SEEDS = 25
SEEDS_LONG = 1_000
EVENTS_EACH = 300
SEED_VARIABLE = "DHSCHED_LOOP_SEED"
COMMAND = f"{SEED_VARIABLE}={{seed}} .venv/bin/pytest tests/unit/test_agent_rules.py -k overrun"
LIVES = ("t/L", "t/M", "t/N", "t/O", "t/P")


class Broken(AssertionError):
    """Agents and store together did what must not be."""


@dataclass
class Device:
    """One GPU machine: the process that runs on it now, and everything on its way to and from it."""

    name: str
    capacity: int
    boots: int = 0
    worker: str = ""
    agent: Agent = field(default_factory=lambda: Agent(1))
    inbox: list[dict[str, Any]] = field(default_factory=list)
    tables: dict[tuple[int, int], Mapping[str, SlotState]] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    told_gone: bool = False

    @property
    def boot(self) -> str:
        return f"{self.name}-{self.boots}"


def acted_on(table: Mapping[str, SlotState]) -> dict[str, str]:
    """The table as far as an agent acts on it: a claim changes no revision, so it may not know of one."""
    return {tag: "starting" if slot == "running" else slot for tag, slot in table.items()}


class Loop:
    """Two devices, a dispatcher that places and moves lives at random, and a network that delays and repeats."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.seed = seed
        self.state = EMPTY
        self.now = 1_000
        self.count = 0
        self.outbox: list[dict[str, Any]] = []
        self.most = 0
        self.devices = [Device("A", 1), Device("B", 2), Device("C", 3)]
        for device in self.devices:
            self.restart(device)

    def step(self, step: str, /, **given: Any) -> Outcome:
        outcome: Outcome
        self.state, outcome = STEPS[step](self.state, self.now, LIMITS, **given)
        return outcome

    def run(self) -> None:
        events = [self.report] * 5 + [self.deliver] * 6 + [self.act] * 6 + [self.runtime_ends] * 4 + [self.claim] * 5
        events += [self.send] * 4 + [self.dispatch] * 10 + [self.rare]
        for self.count in range(EVENTS_EACH):
            self.now += self.rng.choice((0, 1, 5, 20))
            self.rng.choice(events)(self.rng.choice(self.devices))
            agents = {device.name: device.agent for device in self.devices}
            self.most = max(self.most, *(len(agent.runs) for agent in agents.values()))
            self.must_not([*invariants.of_state(self.state), *invariants.of_agents(agents)])

    def must_not(self, broken: list[str]) -> None:
        if broken:
            command = COMMAND.format(seed=self.seed)
            raise Broken(f"seed {self.seed}, event {self.count}: {broken}\nrepeat with: {command}")

    # -- the devices

    def restart(self, device: Device) -> None:
        """The process dies with everything it ran; the next one finds the id that it replaces in the lock file."""
        device.boots += 1
        given = {"name": device.name, "boot": device.boot, "pool": "gpu", "capacity": device.capacity}
        outcome = self.step("register_worker", **given, replaces=device.worker)
        assert isinstance(outcome, outcomes.Registered)
        device.worker, device.agent = outcome.worker, Agent(device.capacity)
        device.inbox, device.tables, device.started, device.told_gone = [], {}, set(), False

    def report(self, device: Device) -> None:
        given = {"worker": device.worker, "boot": device.boot, "term": device.agent.term, "rev": device.agent.rev}
        outcome = self.step("report", **given, partly=self.rng.random() < 0.4)
        if isinstance(outcome, outcomes.Gone):
            device.told_gone = True
        elif isinstance(outcome, outcomes.Reported) and outcome.table is not None:
            at = {"term": outcome.term, "rev": outcome.rev}
            device.tables[outcome.term, outcome.rev] = self.state.slots.get(device.worker, {})
            device.inbox.append({**at, "table": outcome.table, "base": outcome.base})

    def deliver(self, device: Device) -> None:
        """A table arrives: any of those on their way, and sometimes not for the last time."""
        if device.inbox:
            at = self.rng.randrange(len(device.inbox))
            given = device.inbox[at] if self.rng.random() < 0.3 else device.inbox.pop(at)
            device.agent = agent = rules.take_table(device.agent, **given)
            whole = device.tables.get((agent.term, agent.rev), {})
            wrong = acted_on(agent.table) != acted_on(whole)
            self.must_not([f"{device.worker} has {agent.table}, and the store had {whole}"] if wrong else [])

    def act(self, device: Device) -> None:
        """Some of what the agent decides, in its order: the loop that acts may be interrupted anywhere."""
        decided = rules.reconcile(device.agent)
        if device.told_gone:
            decided = [Stop(tag) for tag, phase in device.agent.runs.items() if phase != "stopping"]
            if not device.agent.runs:
                self.restart(device)
                return
        for action in decided[: self.rng.randint(0, 4)]:
            if isinstance(action, Depart):
                live, number = split_tag(action.tag)
                self.outbox.append({"worker": device.worker, "live": live, "number": number})
            elif isinstance(action, Start | Prepare) and action.tag not in device.agent.runs:
                again = [f"{device.worker} starts {action.tag} a second time"] if action.tag in device.started else []
                self.must_not(again)
                device.started.add(action.tag)
            device.agent = act(device.agent, action)

    def runtime_ends(self, device: Device) -> None:
        """A runtime that was told to stop is gone, or, less often, one crashes."""
        told = sorted(tag for tag, phase in device.agent.runs.items() if phase == "stopping")
        others = sorted(device.agent.runs) if self.rng.random() < 0.1 else []
        if told or others:
            device.agent = rules.over(device.agent, self.rng.choice(told or others))

    def claim(self, device: Device) -> None:
        for tag, phase in device.agent.runs.items():
            if phase == "running" and self.rng.random() < 0.7:
                live, epoch = split_tag(tag)
                self.step("pull", live=live, worker=device.worker, epoch=epoch, after=0, controller="c")

    def send(self, device: Device) -> None:
        """A depart reaches the store: any of those on their way, and sometimes not for the last time."""
        if self.outbox:
            at = self.rng.randrange(len(self.outbox))
            self.step("depart", **(self.outbox[at] if self.rng.random() < 0.3 else self.outbox.pop(at)))

    # -- everybody else

    def dispatch(self, device: Device) -> None:
        rng, live = self.rng, self.rng.choice(LIVES)
        record = self.state.lives.get(live)
        workers = rng.sample([each.worker for each in self.devices], 3)
        place = {"live": live, "operation": f"op-{self.count}", "candidates": workers}
        if record is None:
            self.step("place", **place, cause="create", create=Create("anna", "f"))
            return
        match rng.choice(("look", "look", "look", "reassign", "reserve", "commit", "cancel", "end")):
            case "look":
                outcome = self.step("look", live=live)
                if isinstance(outcome, outcomes.Recover):
                    self.step("place", **place, cause="recover", expected=outcome.epoch)
            case "reassign":
                self.step("place", **place, cause="reassign", expected=record.epoch)
            case "reserve":
                self.step("reserve", live=live, expected=record.epoch, candidates=workers)
            case "commit" if record.move:
                target = {**place, "candidates": [record.move.target]}
                self.step("place", **target, cause="rebalance", expected=record.epoch)
            case "cancel" if record.move:
                self.step("cancel", live=live, number=record.move.number)
            case "end" if rng.random() < 0.3:
                self.step("end_live", live=live)

    def rare(self, device: Device) -> None:
        known = self.state.workers.get(device.worker)
        match self.rng.choice(("restart", "expire", "expire", "exit", "cordon", "uncordon")):
            case "restart":
                self.restart(device)
            case "expire" if known:
                self.step("expire_worker", worker=device.worker, beat=known.beat)
            case "expire":
                pass
            case verb:
                self.step("set_worker", worker=device.worker, verb=verb)


def loops(seeds: range) -> list[Loop]:
    done = [Loop(seed) for seed in seeds]
    for loop in done:
        loop.run()
    return done


def test_agents_and_store_together_never_overrun_a_device_nor_start_a_generation_twice() -> None:
    repeated = os.environ.get(SEED_VARIABLE)
    if repeated:
        loops(range(int(repeated), int(repeated) + 1))
        return
    done = loops(range(SEEDS))
    assert max(loop.most for loop in done) == 3
    assert max(device.boots for loop in done for device in loop.devices) > 2


@pytest.mark.long
def test_no_longer_loop_overruns_a_device() -> None:
    loops(range(SEEDS, SEEDS + SEEDS_LONG))


def mutant_stopping_runtimes_do_not_count(patch: pytest.MonkeyPatch) -> None:
    def starts(agent: Agent, tags: list[str]) -> list[Action]:
        running = {tag: phase for tag, phase in agent.runs.items() if phase != "stopping"}
        return [each for each in real(replace(agent, runs=frozen(running)), tags) if each.tag not in agent.runs]

    real = rules.starts
    patch.setattr(rules, "starts", starts)


def mutant_old_tables_are_taken(patch: pytest.MonkeyPatch) -> None:
    def take(agent: Agent, *, base: int, **given: Any) -> Agent:
        return real(agent if base else replace(agent, term=0, rev=0), base=base, **given)

    real = rules.take_table
    patch.setattr(rules, "take_table", take)


def mutant_old_changes_are_applied(patch: pytest.MonkeyPatch) -> None:
    def take(agent: Agent, *, base: int, **given: Any) -> Agent:
        return real(replace(agent, rev=base) if 0 < base < agent.rev else agent, base=base, **given)

    real = rules.take_table
    patch.setattr(rules, "take_table", take)


def mutant_a_crash_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    real = rules.over
    patch.setattr(rules, "over", lambda agent, tag: replace(real(agent, tag), finished=agent.finished))


@pytest.mark.parametrize(
    "mutant",
    [each for name, each in [*globals().items()] if name.startswith("mutant_")],
    ids=lambda each: each.__name__,
)
def test_the_loop_catches(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(Broken, match="repeat with: DHSCHED_LOOP_SEED="):
        loops(range(SEEDS))
