"""The rules of a Worker's agent, pure: they are part of the safety argument (docs/internals/protocol.md, table a).

The agent gets its whole slot table and compares it with the runtimes that it runs. It never runs more runtimes than its
capacity, counting those that are still stopping, and it never starts a generation twice in one boot: a crash or a
depart ends the generation. That is why the store may give a slot away as soon as the agent sends `depart`.

An `Agent` is a value, which the tests and the specification step from one to the next; an `AgentBook` is the same for
an agent that runs. Both go by the same rules: `taken`, `unsettled`, `reconcile`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from dhsched.ownership.state import frozen
from dhsched.types import SlotState

Phase = Literal["prepared", "running", "stopping"]


@dataclass(frozen=True, slots=True)
class Start:
    """Run this generation; if it was prepared, let it go on to claim."""

    tag: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Build the runtime of a reserved slot: it claims nothing and publishes nothing yet."""

    tag: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this runtime."""

    tag: str


@dataclass(frozen=True, slots=True)
class Depart:
    """Tell Dispatch that this slot has no runtime here, and never will have one again."""

    tag: str


Action = Start | Prepare | Stop | Depart


@dataclass(frozen=True, slots=True)
class Agent:
    """What one boot knows: the newest slot table, its runtimes, and the slots that it will never run again."""

    capacity: int
    term: int = 0
    rev: int = 0
    table: Mapping[str, SlotState] = field(default_factory=lambda: frozen({}))
    runs: Mapping[str, Phase] = field(default_factory=lambda: frozen({}))
    finished: frozenset[str] = frozenset()
    home: str = ""


class Known(Protocol):
    """What the rules read of an agent."""

    @property
    def capacity(self) -> int: ...
    @property
    def home(self) -> str: ...
    @property
    def term(self) -> int: ...
    @property
    def rev(self) -> int: ...
    @property
    def table(self) -> Mapping[str, SlotState]: ...
    @property
    def runs(self) -> Mapping[str, Phase]: ...
    @property
    def finished(self) -> Collection[str]: ...


def taken(agent: Known, *, home: str, term: int, rev: int, base: int) -> bool:
    """Return whether the agent takes a slot table that arrived. One that is older than its own is from a slow reply.

    Revisions of two homes cannot be compared: a table of another home is taken. If it was the older one, the next
    report says so, and brings the table of now.

    With a `base` the table has only what changed after this revision. If that is not the agent's own, the next report
    brings what is missing.
    """
    if home == agent.home and (term, rev) < (agent.term, agent.rev):
        return False
    return not base or (home, term, base) == (agent.home, agent.term, agent.rev)


def take_table(
    agent: Agent, *, home: str = "", term: int, rev: int, table: Mapping[str, SlotState | None], base: int = 0
) -> Agent:
    """Return the agent after a slot table arrived."""
    if not taken(agent, home=home, term=term, rev=rev, base=base):
        return agent
    both = {**agent.table, **table} if base else table
    slots = {tag: slot for tag, slot in both.items() if slot is not None}
    # A tag that the store has dropped never comes back, so there is no need to remember that it is finished. Only a
    # store that has forgotten brings one back: then it is run once more, and its acks name marks.
    finished = frozenset(tag for tag in agent.finished if tag in slots or tag in agent.runs)
    return replace(agent, home=home, term=term, rev=rev, table=frozen(slots), finished=finished)


def unsettled(slot: SlotState | None, phase: Phase | None) -> bool:
    """Return whether a tag may need an action, now or once there is capacity."""
    if phase is None:
        return slot is not None
    if phase == "prepared":
        return slot != "reserved"
    return phase == "running" and slot in (None, "departing", "vacant")


def reconcile(agent: Known, among: Collection[str] | None = None) -> list[Action]:
    """Return what to do now, in order: stop, depart, then start while there is capacity.

    `among` are the tags to look at: those that are unsettled, at least.
    """
    tags = sorted({*agent.table, *agent.runs} if among is None else among)
    stop: list[Action] = []
    depart: list[Action] = []
    for tag in tags:
        phase = agent.runs.get(tag)
        if phase not in (None, "stopping") and agent.table.get(tag) in (None, "departing", "vacant"):
            stop.append(Stop(tag))
    # A slot that is given back frees a slot at once. While a runtime whose own slot is gone still holds the GPU,
    # another slot stands for it, or the store would send lives to a Worker that is full. It costs those lives a wait,
    # never capacity: with several slots a start can still come first (docs/internals/protocol.md, known gaps).
    spare = len(agent.table) - len(agent.runs)
    for tag in sorted(tags, key=lambda tag: tag not in agent.finished):
        slot = agent.table.get(tag)
        if tag in agent.runs:
            continue
        if slot in ("starting", "running") and tag in agent.finished:
            depart.append(Depart(tag))  # It crashed: the slot stays, as vacant.
        elif slot == "departing" or (slot == "reserved" and tag in agent.finished):
            if spare > 0:
                depart.append(Depart(tag))
            spare -= 1
    return stop + depart + starts(agent, tags)


def starts(agent: Known, tags: Sequence[str]) -> list[Action]:
    actions: list[Action] = []
    free = agent.capacity - len(agent.runs)
    # Owned generations before reserved ones: somebody is waiting for them.
    for tag in sorted(tags, key=lambda tag: agent.table.get(tag) == "reserved"):
        slot = agent.table.get(tag)
        if tag in agent.finished or slot not in ("starting", "running", "reserved"):
            continue
        phase = agent.runs.get(tag)
        if phase == "prepared" and slot != "reserved":
            actions.append(Start(tag))
        elif phase is None and free > 0:
            free -= 1
            actions.append(Prepare(tag) if slot == "reserved" else Start(tag))
    return actions


def begun(agent: Agent, action: Start | Prepare) -> Agent:
    """Return the agent with this runtime, which exists and counts from here on."""
    phase: Phase = "running" if isinstance(action, Start) else "prepared"
    return replace(agent, runs=frozen({**agent.runs, action.tag: phase}))


def stopping(agent: Agent, tag: str) -> Agent:
    return replace(agent, runs=frozen({**agent.runs, tag: "stopping"}))


def over(agent: Agent, tag: str) -> Agent:
    """Return the agent without a runtime that was stopped or crashed: its generation is finished in this boot."""
    runs = {other: phase for other, phase in agent.runs.items() if other != tag}
    return replace(agent, runs=frozen(runs), finished=agent.finished | {tag})


def departed(agent: Agent, tag: str) -> Agent:
    """Return the agent after its depart: it must not start that tag again, even from a table that it already has."""
    return replace(agent, finished=agent.finished | {tag})


class AgentBook:
    """An Agent that is changed in place: the slot table, the runtimes and the finished slots of a boot that runs.

    A Worker with thousands of lives starts one more without copying or reading all the others: only tags whose slot and
    runtime do not agree are looked at, those in `unsettled`. A test compares book and Agent after every change.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.home = ""
        self.term = 0
        self.rev = 0
        self.table: dict[str, SlotState] = {}
        self.runs: dict[str, Phase] = {}
        self.finished: set[str] = set()
        self.unsettled: set[str] = set()
        self._ended: set[str] = set()  # Tags that became finished after the last table.

    def take_table(
        self, *, home: str = "", term: int, rev: int, table: Mapping[str, SlotState | None], base: int = 0
    ) -> None:
        if not taken(self, home=home, term=term, rev=rev, base=base):
            return
        changed = {*table} if base else {*table, *self.table}
        for tag in changed:
            slot = table.get(tag)
            if slot is None:
                self.table.pop(tag, None)
            else:
                self.table[tag] = slot
        self.home, self.term, self.rev = home, term, rev
        for tag in changed | self._ended:
            if tag not in self.table and tag not in self.runs:
                self.finished.discard(tag)
        self._ended = set()
        for tag in changed:
            self._look(tag)

    def actions(self) -> list[Action]:
        """Return what to do now, in order."""
        # A set never shrinks: reading one that once held thousands of tags costs as much as reading those thousands.
        self.unsettled = {*self.unsettled}
        return reconcile(self, self.unsettled)

    def begun(self, action: Start | Prepare) -> None:
        self._run(action.tag, "running" if isinstance(action, Start) else "prepared")

    def stopping(self, tag: str) -> None:
        self._run(tag, "stopping")

    def over(self, tag: str) -> None:
        self.runs.pop(tag, None)
        self._finish(tag)
        self._look(tag)

    def departed(self, tag: str) -> None:
        self._finish(tag)

    def _finish(self, tag: str) -> None:
        self.finished.add(tag)
        self._ended.add(tag)

    def _run(self, tag: str, phase: Phase) -> None:
        self.runs[tag] = phase
        self._look(tag)

    def _look(self, tag: str) -> None:
        if unsettled(self.table.get(tag), self.runs.get(tag)):
            self.unsettled.add(tag)
        else:
            self.unsettled.discard(tag)
