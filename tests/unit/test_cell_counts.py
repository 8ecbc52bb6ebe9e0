"""`lives_max` over several cells: what the other cells have, as one replica counts it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.dispatch.api import create
from dhsched.dispatch.cells import counts
from dhsched.dispatch.cells.counts import LivesElsewhere, TenantCounts
from dhsched.dispatch.cells.served import ServedCell
from dhsched.dispatch.commit import Intent
from dhsched.errors import StoreUnavailable


class Cell:
    """One cell, whose store says how many lives a tenant has once `may_answer` is set."""

    def __init__(self, name: str, lives: int = 0) -> None:
        self.name, self.lives = name, lives
        self.trouble = ""
        self.reachable = True
        self.reads = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.fails = False
        self.records = SimpleNamespace(tenants=SimpleNamespace(usage=self.usage))

    async def usage(self, _tenant: str) -> Any:
        self.reads += 1
        lives = self.lives
        await self.may_answer.wait()
        if self.fails:
            raise StoreUnavailable("away", unknown=False)
        return SimpleNamespace(lives=lives)


def elsewhere_of(*cells: Cell) -> list[LivesElsewhere]:
    made = TenantCounts([cast(ServedCell, each) for each in cells])
    return [LivesElsewhere(made, cast(ServedCell, each)) for each in cells]


async def test_the_others_are_counted_and_the_cell_itself_is_not() -> None:
    a, b, c = elsewhere_of(Cell("a", 1), Cell("b", 20), Cell("c", 300))
    assert [await each.count("acme") for each in (a, b, c)] == [320, 301, 21]


async def test_a_count_is_read_once_and_used_for_a_while() -> None:
    cells = [Cell("a"), Cell("b", 5)]
    a, _ = elsewhere_of(*cells)
    assert [await a.count("acme") for _ in range(3)] == [5, 5, 5]
    assert cells[1].reads == 1


async def test_a_burst_through_one_replica_is_counted_before_any_store_was_read_again() -> None:
    cells = [Cell("a"), Cell("b"), Cell("c")]
    a, b, c = elsewhere_of(*cells)
    assert await c.count("acme") == 0
    with a.creating("acme") as made:
        assert await c.count("acme") == 1, "it may succeed"
        made.made += 1
    with b.creating("acme"):
        assert await c.count("acme") == 2
    assert await c.count("acme") == 1, "nothing was made in b"
    assert [each.reads for each in cells] == [1, 1, 0]


async def test_what_was_created_while_the_store_was_read_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "COUNT_S", 0.0)
    cells = [Cell("a"), Cell("b")]
    a, b = elsewhere_of(*cells)
    with b.creating("acme") as made:
        made.made += 1
    assert await a.count("acme") == 0, "the store was read after it"
    cells[1].may_answer.clear()
    await a.count("acme")
    for _ in range(5):
        await asyncio.sleep(0)
    with b.creating("acme") as made:
        made.made += 1
    cells[1].may_answer.set()
    for _ in range(5):
        await asyncio.sleep(0)
    monkeypatch.setattr(counts, "COUNT_S", 60.0)
    assert await a.count("acme") == 1, "the read began before it"


async def test_a_store_that_does_not_answer_holds_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "WAIT_S", 0.01)
    cells = [Cell("a"), Cell("b", 7), Cell("c", 2)]
    a, _, _ = elsewhere_of(*cells)
    cells[1].may_answer.clear()
    assert await a.count("acme") == 2, "b was never read"
    cells[1].may_answer.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert await a.count("acme") == 9
    cells[1].fails, cells[1].reachable = True, False
    monkeypatch.setattr(counts, "COUNT_S", 0.0)
    assert await a.count("acme") == 9, "a cell that is away counts as it said last"
    cells[1].trouble = "its store was not reached yet"
    assert await a.count("acme") == 2


async def test_so_many_counts_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "KEPT_MAX", 4)
    cells = [Cell("a"), Cell("b", 1)]
    a, _ = elsewhere_of(*cells)
    for n in range(10):
        assert await a.count(f"t{n}") == 1
    assert len(a.counts._known) <= 4


async def test_a_create_beyond_the_limit_is_never_one_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The live was there when it was looked for, ended, and is swept before the step: for the step, 0 is no limit."""
    limits: list[int] = []

    async def commit(_context: Any, intent: Intent) -> Any:
        limits.append(intent.lives_max)
        return SimpleNamespace(outcome=None)

    async def get(_live: str) -> str:
        return "ended"

    monkeypatch.setattr(create, "commit", commit)
    context: Any = SimpleNamespace(records=SimpleNamespace(lives=SimpleNamespace(get=get)))
    for elsewhere in (5, 9):
        a, _ = elsewhere_of(Cell("a"), Cell("b", elsewhere))
        intent = Intent(live="acme/L", cause="create", point="create", operation="op", choice=None, lives_max=5)
        await create.commit_beside(context, a, "acme", intent)
    assert all(limits), limits
