"""An agent's book, which is changed in place, knows and decides the same as the pure rules, whatever comes."""

from __future__ import annotations

from random import Random
from typing import get_args

import pytest

from dhsched.ownership import agent as rules
from dhsched.ownership.agent import Agent, AgentBook, Depart, Prepare, Start, Stop
from dhsched.types import SlotState

TAGS = [f"t/L{n}@{number}" for n in range(5) for number in (1, 2)]
STATES = get_args(SlotState)


class Pair:
    """The same agent twice, and the store's table for it."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.pure = Agent(rng.randint(1, 4))
        self.book = AgentBook(self.pure.capacity)
        self.rev, self.table, self.revs = 1, dict[str, SlotState](), dict[str, int]()
        self.old: list[tuple[int, dict[str, SlotState]]] = []

    def change(self) -> None:
        self.old.append((self.rev, dict(self.table)))
        self.rev += 1
        for tag in self.rng.sample(TAGS, self.rng.randint(1, 3)):
            self.revs[tag] = self.rev
            self.table.pop(tag, None)
            if self.rng.random() < 0.8:
                self.table[tag] = self.rng.choice(STATES)

    def hear(self) -> None:
        """A whole table, perhaps an old one or one of another home; or changes since this revision or another one."""
        home = "" if self.rng.random() < 0.9 else self.rng.choice(["", "other"])
        rev, table = self.rng.choice([*self.old[-3:], (self.rev, self.table)])
        base = self.rng.choice([0, self.pure.rev, max(0, self.pure.rev - 1)])
        sent: dict[str, SlotState | None] = {**table}
        if base:
            rev, sent = self.rev, {tag: self.table.get(tag) for tag, at in self.revs.items() if at > base}
        self.pure = rules.take_table(self.pure, home=home, term=1, rev=rev, table=sent, base=base)
        self.book.take_table(home=home, term=1, rev=rev, table=sent, base=base)

    def act(self) -> None:
        for action in rules.reconcile(self.pure)[: self.rng.randint(0, 3)]:
            match action:
                case Start() | Prepare():
                    self.pure = rules.begun(self.pure, action)
                    self.book.begun(action)
                case Stop(tag):
                    self.pure = rules.stopping(self.pure, tag)
                    self.book.stopping(tag)
                case Depart(tag):
                    self.pure = rules.departed(self.pure, tag)
                    self.book.departed(tag)

    def end(self) -> None:
        if self.pure.runs:
            tag = self.rng.choice(sorted(self.pure.runs))
            self.pure = rules.over(self.pure, tag)
            self.book.over(tag)

    def compare(self) -> None:
        for name in ("capacity", "home", "term", "rev", "table", "runs", "finished"):
            assert getattr(self.book, name) == getattr(self.pure, name), name
        assert self.book.actions() == rules.reconcile(self.pure)


def run(seeds: int) -> None:
    for seed in range(seeds):
        pair = Pair(Random(seed))
        for _ in range(150):
            pair.rng.choice([pair.change, pair.hear, pair.hear, pair.act, pair.act, pair.end])()
            pair.compare()


def test_the_book_is_the_agent() -> None:
    run(60)


def test_a_book_of_a_busy_worker_looks_only_at_what_is_unsettled() -> None:
    book = AgentBook(1_000)
    book.take_table(term=1, rev=1, table={f"t/L{n}@1": "running" for n in range(900)})
    for action in book.actions():
        assert isinstance(action, Start)
        book.begun(action)
    assert book.unsettled == set()
    book.take_table(term=1, rev=2, base=1, table={"t/new@1": "starting", "t/L0@1": "departing"})
    assert book.unsettled == {"t/new@1", "t/L0@1"} and book.actions() == [Stop("t/L0@1"), Start("t/new@1")]


@pytest.mark.parametrize("broken", ["_look", "take_table", "over"])
def test_the_comparison_notices(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentBook, broken, lambda *_, **__: None)
    with pytest.raises(AssertionError):
        run(60)
