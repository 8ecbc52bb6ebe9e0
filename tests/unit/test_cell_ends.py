"""Ending lives in several cells: one that cannot end its own does not keep the others from ending theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.client.models import lives as m
from dhsched.dispatch.cells import ends
from dhsched.dispatch.cells.ends import end_in_cells
from dhsched.dispatch.cells.served import ServedCell
from dhsched.errors import StoreRefused
from dhsched.web import Request


class Cell:
    """A cell with some lives, whose store takes writes as the test says."""

    def __init__(self, name: str, *lives: str) -> None:
        self.name, self.lives = name, lives
        self.context: Any = self
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.refuses = False
        self.ended: list[str] = []

    async def promptly(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        return await ask()

    async def answer(self, name: str, asked: Request) -> m.EndedLives:
        await self.may_write.wait()
        if self.refuses:
            raise StoreRefused("READONLY a replica", code="READONLY")
        assert name == "end_lives" and asked.body.limit == len(self.lives)
        self.ended += self.lives
        return m.EndedLives([*self.lives], False, None)


class Selection:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    async def page(self, cell: Cell, _after: str, _limit: int) -> tuple[list[Any], None]:
        return [SimpleNamespace(live=f"acme/{live}") for live in cell.lives], None


def asked() -> Request:
    caller: Any = SimpleNamespace(tenant="acme")
    body = m.EndLives(digital_id="anna", limit=100)
    return Request(cast(Any, None), None, None, body, "r-1", cast(Any, None), caller)


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "Selection", Selection)


async def test_lives_of_all_cells_are_ended() -> None:
    a, b = Cell("a", "1", "4"), Cell("b", "2")
    found = await end_in_cells([cast(ServedCell, each) for each in (a, b)], asked())
    assert (found.live_ids, found.more) == (["1", "2", "4"], False)


async def test_a_cell_that_cannot_end_its_lives_does_not_keep_the_others_from_ending_theirs() -> None:
    a, b = Cell("a", "1"), Cell("b", "2")
    a.refuses = True
    with pytest.raises(StoreRefused):
        await end_in_cells([cast(ServedCell, each) for each in (a, b)], asked())
    assert b.ended == ["2"]


async def test_a_cell_that_stands_still_does_not_keep_the_others_waiting() -> None:
    a, b = Cell("a", "1"), Cell("b", "2")
    a.may_write.clear()
    ending = asyncio.create_task(end_in_cells([cast(ServedCell, each) for each in (a, b)], asked()))
    for _ in range(10):
        await asyncio.sleep(0)
    assert b.ended == ["2"] and not ending.done()
    a.may_write.set()
    assert (await ending).live_ids == ["1", "2"]
