"""What a running agent keeps: an Agent that is changed in place.

The rules are those of agent.py, and a test compares the two after every change. A Worker with thousands of lives starts
one more without copying or reading all the others: only tags whose slot and runtime do not agree are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from dhsched.ownership.agent import Action, Phase, Prepare, Start, reconcile, taken, unsettled
from dhsched.types import SlotState


class AgentBook:
    """The slot table, the runtimes and the finished slots of one boot. `unsettled` has the tags that may need an
    action."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.home = ""
        self.term = 0
        self.rev = 0
        self.table: dict[str, SlotState] = {}
        self.runs: dict[str, Phase] = {}
        self.finished: set[str] = set()
        self.unsettled: set[str] = set()

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
        self.finished = {tag for tag in self.finished if tag in self.table or tag in self.runs}
        for tag in changed:
            self._look(tag)

    def actions(self) -> list[Action]:
        """Return what to do now, in order."""
        return reconcile(self, self.unsettled)

    def begun(self, action: Start | Prepare) -> None:
        self._run(action.tag, "running" if isinstance(action, Start) else "prepared")

    def stopping(self, tag: str) -> None:
        self._run(tag, "stopping")

    def over(self, tag: str) -> None:
        self.runs.pop(tag, None)
        self.finished.add(tag)
        self._look(tag)

    def departed(self, tag: str) -> None:
        self.finished.add(tag)

    def _run(self, tag: str, phase: Phase) -> None:
        self.runs[tag] = phase
        self._look(tag)

    def _look(self, tag: str) -> None:
        if unsettled(self.table.get(tag), self.runs.get(tag)):
            self.unsettled.add(tag)
        else:
            self.unsettled.discard(tag)
