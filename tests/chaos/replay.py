"""The record of a run, step by step, held to three judges: the model's answers, the invariants, rules without model.

It is followed while the storm goes on, so a wrong step is seen within a second of it. On the way it keeps the books
that the ledger is checked against: what was appended, who acked it, what was dropped and why, where each generation
began.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from dhsched.ownership import invariants
from dhsched.ownership import outcomes as o
from dhsched.ownership.state import EMPTY, Live, State
from dhsched.ownership.steps import STEPS
from tests.chaos.limits import CHAOS_LIMITS
from tests.chaos.trace import Taken, read
from tests.harness.hammer import as_text, said
from tests.harness.judge import Judge

HOT = frozenset({"append_input", "release_input", "ack_input", "report"})
"""Steps that come so often that the whole state is looked at after some of them only."""
HOT_EVERY = 25
SHOWN = 6


@dataclass
class Account:
    """One live's input, by number."""

    content: dict[int, str] = field(default_factory=dict)
    acked_by: dict[int, tuple[str, int]] = field(default_factory=dict)
    dropped: dict[int, str] = field(default_factory=dict)
    generations: dict[int, Generation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Generation:
    """Where a generation began, and how it came about. `planned` repeats nothing."""

    worker: str
    cause: str
    acked: int
    planned: bool


class Replay:
    """The model beside the store. `violations` say what was wrong; after a wrong answer the model follows no longer."""

    def __init__(self) -> None:
        self.state: State = EMPTY
        self.tick = 0
        self.steps = 0
        self.now = 0
        self.cpu_s = 0.0
        self.violations: list[str] = []
        self.diverged = False
        self.moved: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.accounts: dict[str, Account] = {}
        self._judge = Judge()
        self._latest: list[Taken] = []

    def take(self, record: bytes) -> None:
        """The next record. Where one is missing, the store has lost history."""
        began = time.process_time()
        tick, steps = read(record)
        if tick <= self.tick:
            return
        if tick != self.tick + 1:
            self._wrong("history", f"steps {self.tick + 1} to {tick - 1} are missing: the store forgot them")
        self.tick = tick
        for step in steps:
            self.follow(step)
        self.cpu_s += time.process_time() - began

    def follow(self, taken: Taken) -> None:
        self._latest = [*self._latest, taken][-SHOWN:]
        self.steps += 1
        self.now = taken.now
        name = type(taken.answer).__name__
        self.answers[f"{taken.step} {name}"] += 1
        for complaint in self._judge.take(taken.step, as_text(taken.arguments), said(taken.answer)):
            self._wrong("rules", complaint)
        if self.diverged:
            return
        before = self.state
        if taken.step == "enter":
            # Calls are counted that are no steps, such as a change of the configuration.
            before = replace(before, cell=replace(before.cell, pos=taken.answer.pos))
        after, expected = STEPS[taken.step](before, taken.now, CHAOS_LIMITS, **taken.arguments)
        if expected != taken.answer:
            self._wrong("model", f"{taken.step} {taken.arguments} answered {taken.answer}, the model {expected}")
            self.diverged = True
            return
        self.state = after
        if after is not before:
            self._check(taken, before, after)
            self._book(taken, before, after)

    def _check(self, taken: Taken, before: State, after: State) -> None:
        found = invariants.of_step(before, after)
        if taken.step not in HOT or self.steps % HOT_EVERY == 0:
            found += invariants.of_state(after)
        epoch = taken.arguments.get("epoch", taken.arguments.get("expected"))
        if epoch is not None:
            found += invariants.old_work(before, after, taken.arguments["live"], epoch)
        for complaint in found:
            self._wrong("invariants", f"after {taken.step} {taken.arguments}: {complaint}")

    # -- the books

    def _book(self, taken: Taken, before: State, after: State) -> None:
        live = taken.arguments.get("live")
        record = after.lives.get(live) if live else None
        if live is None or record is None:
            return
        account = self.accounts.setdefault(live, Account())
        old = before.lives.get(live)
        if isinstance(taken.answer, o.Appended):
            account.content[taken.answer.seq] = taken.arguments["payload"].decode()
        self._settled(taken, account, old.acked if old else 0, record)
        if old is None or record.epoch != old.epoch:
            self._placed(taken, account, record)

    def _settled(self, taken: Taken, account: Account, acked: int, record: Live) -> None:
        """Numbers that this step moved below the cursor: by an ack, or dropped."""
        for seq in range(acked + 1, record.acked + 1):
            if taken.step == "ack_input":
                account.acked_by[seq] = (taken.arguments["worker"], taken.arguments["epoch"])
            else:
                account.dropped[seq] = {"append_input": "interrupt", "place": "poison"}.get(taken.step, "end")

    def _placed(self, taken: Taken, account: Account, record: Live) -> None:
        cause = taken.arguments["cause"]
        planned = cause in ("drain", "rebalance") and taken.arguments["at_boundary"]
        account.generations[record.epoch] = Generation(record.selected, cause, record.acked, planned)
        if cause != "create":
            self.moved[f"{cause}, planned" if planned else cause] += 1

    def _wrong(self, judge: str, what: str) -> None:
        self.violations.append(f"{judge}: tick {self.tick}: {what}")

    def latest(self) -> list[Any]:
        return [(each.tick, each.step, each.arguments, each.answer) for each in self._latest]
