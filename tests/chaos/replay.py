"""One history of the store, step by step, held to four judges: the model's answers, the invariants, rules without
model, and the numbers that all histories of a run have given out.

It is followed while the storm goes on, so a wrong step is seen within a second of it. On the way it keeps the books
that the ledger is checked against: what was appended, to whom it was released, who acked it, what was dropped and why,
where each generation began. A store that is set back has another history from then on: `branch` is where it begins.
"""

from __future__ import annotations

import copy
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dhsched.ownership import invariants
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import EMPTY, Live, State
from dhsched.ownership.steps import STEPS
from tests.chaos.hostile_judge import HostileJudge
from tests.chaos.limits import CHAOS_LIMITS
from tests.chaos.trace import COUNTED_AROUND, Taken, read
from tests.harness.hammer import as_text, said
from tests.harness.judge import Judge

HOT = frozenset({"append_input", "release_input", "ack_input", "emit", "report"})
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
    released: set[tuple[int, int]] = field(default_factory=set)
    """Which generation was handed which number, by epoch."""

    def branch(self) -> Account:
        books = (self.content, self.acked_by, self.dropped, self.generations, self.released)
        return Account(*(copy.copy(each) for each in books))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Generation:
    """Where a generation began, and how it came about. `planned` repeats nothing."""

    worker: str
    cause: str
    acked: int
    planned: bool


class Numbers:
    """What all histories of a run have given out, each with the step that did. A step of the common past of two
    histories is the same step in both."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int], str] = {}
        self._given: dict[tuple[Any, ...], tuple[int, int]] = {}

    def take(self, taken: Taken) -> Iterator[str]:
        live, step = taken.arguments.get("live", ""), (taken.tick, taken.now)
        match taken.answer:
            case o.Committed(generation=made, again=again):
                yield from self._owned(live, made.epoch, made.worker)
                # A reservation that two histories share may be committed in both, for the same Worker.
                if not again and ("reservation", live, made.epoch) not in self._given:
                    yield from self._give(step, "commit", live, made.epoch)
            case o.Reserved(target=target, number=number, again=again):
                yield from self._owned(live, number, target)
                if not again:
                    yield from self._give(step, "reservation", live, number)
            case o.Pulling(pull_no=pull_no):
                yield from self._give(step, "pull", live, taken.arguments["epoch"], pull_no)
            case o.Registered(worker=worker, again=False):
                yield from self._give(step, "WorkerID", worker)

    def _owned(self, live: str, epoch: int, worker: str) -> Iterator[str]:
        owner = self._owners.setdefault((live, epoch), worker)
        if owner != worker:
            yield f"{live}@{epoch} is of {owner} and of {worker}"

    def _give(self, step: tuple[int, int], *what: Any) -> Iterator[str]:
        first = self._given.setdefault(what, step)
        if first != step:
            yield f"{what} was given out at tick {first[0]} and again at tick {step[0]}"


class Tally:
    """What all histories of a run have in common: what was counted, the numbers, and what was wrong."""

    def __init__(self, tell: Callable[[str, list[Any]], None]) -> None:
        self.steps = 0
        self.cpu_s = 0.0
        self.moved: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.numbers = Numbers()
        self.tell = tell
        """Takes a violation and the last steps before it."""
        self.hostile: HostileJudge | None = None
        self.watch: Callable[[Taken, State, State], None] | None = None
        """Is called with each step that the model has made too, and the states before and after it."""


class Replay:
    """The model beside one history of the store. After a wrong answer the model follows it no longer."""

    def __init__(self, tally: Tally, limits: Limits = CHAOS_LIMITS) -> None:
        self.limits = limits
        self.state: State = EMPTY
        self.tick = 0
        self.now = 0
        self.diverged = False
        self.accounts: dict[str, Account] = {}
        self._tally = tally
        self._judge = Judge()
        self._latest: deque[Taken] = deque(maxlen=SHOWN)

    def branch(self) -> Replay:
        """A history that is the same up to here and goes on by itself."""
        other = copy.copy(self)
        other.accounts = {live: account.branch() for live, account in self.accounts.items()}
        other._judge = copy.deepcopy(self._judge)
        other._latest = self._latest.copy()
        return other

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
        self._tally.cpu_s += time.process_time() - began

    def follow(self, taken: Taken) -> None:
        self._latest.append(taken)
        self.now = taken.now
        if taken.step in COUNTED_AROUND:
            self.state = counted(self.state)
            return
        self._tally.steps += 1
        self._tally.answers[f"{taken.step} {type(taken.answer).__name__}"] += 1
        for complaint in self._judge.take(taken.step, as_text(taken.arguments), said(taken.answer)):
            self._wrong("rules", complaint)
        for complaint in self._tally.numbers.take(taken):
            self._wrong("numbers", complaint)
        if self.diverged:
            return
        before = counted(self.state) if taken.counted else self.state
        after, expected = STEPS[taken.step](before, taken.now, self.limits, **taken.arguments)
        if expected != taken.answer:
            self._wrong("model", f"{taken.step} {taken.arguments} answered {taken.answer}, the model {expected}")
            self.diverged = True
            return
        self.state = after
        if self._tally.watch is not None:
            self._tally.watch(taken, before, after)
        if self._tally.hostile is not None:
            for complaint in self._tally.hostile.take(taken, before, after):
                self._wrong("hostile", complaint)
        if isinstance(taken.answer, o.Items):
            self._released(taken, taken.answer)
        if after is not before:
            self._check(taken, before, after)
            self._book(taken, before, after)

    def _check(self, taken: Taken, before: State, after: State) -> None:
        found = invariants.of_step(before, after)
        if taken.step not in HOT or self._tally.steps % HOT_EVERY == 0:
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
            if taken.answer.mark:
                account.released.add((taken.arguments["through"].epoch, taken.answer.seq))
        self._settled(taken, account, old.acked if old else 0, record)
        if old is None or record.epoch != old.epoch:
            self._placed(taken, account, record)

    def _released(self, taken: Taken, answer: o.Items) -> None:
        account, epoch = self.accounts.setdefault(taken.arguments["live"], Account()), taken.arguments["epoch"]
        account.released.update((epoch, seq) for seq in range(answer.first, answer.first + len(answer.items)))

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
            self._tally.moved[f"{cause}, planned" if planned else cause] += 1

    def _wrong(self, judge: str, what: str) -> None:
        latest = [(each.tick, each.step, each.arguments, each.answer) for each in self._latest]
        self._tally.tell(f"{judge}: tick {self.tick}: {what}", latest)


def counted(state: State) -> State:
    return replace(state, cell=replace(state.cell, pos=state.cell.pos + 1))
