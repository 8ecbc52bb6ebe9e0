"""Which Infer-Controllers Dispatch passes the input of a live on to, where there are several cells."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.dispatch.cells import controllers
from dhsched.dispatch.cells.controllers import ControllersOfCells
from dhsched.dispatch.cells.served import ServedCell
from dhsched.errors import StoreUnavailable


class Cell:
    def __init__(self, name: str, *urls: str) -> None:
        self.name, self.urls, self.trouble = name, urls, ""
        self.reads = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.fails = False
        self.records = SimpleNamespace(controllers=SimpleNamespace(all=self.all))

    async def promptly(self, ask: Any) -> Any:
        return await ask()

    async def all(self) -> list[Any]:
        self.reads += 1
        await self.may_answer.wait()
        if self.fails:
            raise StoreUnavailable("away", unknown=False)
        return [SimpleNamespace(url=url) for url in self.urls]


def made(*cells: Cell) -> ControllersOfCells:
    by_name = {each.name: cast(ServedCell, each) for each in cells}
    return ControllersOfCells([*by_name.values()], lambda live: by_name[live[0]])


async def test_a_live_is_passed_on_to_who_serves_its_cell_and_streams_of_many_to_any() -> None:
    lists = made(Cell("a", "http://1", "http://2"), Cell("b", "http://2"))
    assert await lists.serving("a/L") == ["http://1", "http://2"]
    assert await lists.serving("b/L") == ["http://2"], "the first one has not reached that cell"
    assert await lists.serving(None) == ["http://1", "http://2"]


async def test_a_list_is_read_in_the_background_and_by_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "READ_S", 0.0)
    cell = Cell("a", "http://1")
    lists = made(cell)
    assert await asyncio.gather(*(lists.serving("a/L") for _ in range(5))) == [["http://1"]] * 5
    assert cell.reads == 1
    cell.urls = ("http://1", "http://2")
    cell.may_answer.clear()
    assert [await lists.serving("a/L") for _ in range(3)] == [["http://1"]] * 3, "nobody waits for the store"
    cell.may_answer.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert cell.reads == 2
    assert await lists.serving("a/L") == ["http://1", "http://2"]


async def test_a_cell_that_is_away_keeps_its_last_list_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "READ_S", 0.0)
    a, b = Cell("a", "http://1"), Cell("b", "http://2")
    lists = made(a, b)
    await lists.serving(None)
    a.fails = True
    b.may_answer.clear()
    for _ in range(3):
        assert await lists.serving("a/L") == ["http://1"] and await lists.serving("b/L") == ["http://2"]
        await asyncio.sleep(0)
    b.may_answer.set()


async def test_input_for_a_cell_that_has_never_shown_its_controllers_is_refused() -> None:
    cell = Cell("a", "http://1")
    cell.trouble = "its store was not reached yet"
    lists = made(cell)
    with pytest.raises(StoreUnavailable, match="cell a cannot be asked"):
        await lists.serving("a/L")
    assert await lists.serving(None) == [] and cell.reads == 0
    cell.trouble, cell.fails = "", True
    with pytest.raises(StoreUnavailable, match="cell a cannot be asked"):
        await lists.serving("a/L")
    assert cell.reads == 1


async def test_a_stream_of_many_does_not_wait_for_a_cell_that_stands_still_if_another_names_a_controller() -> None:
    a, b = Cell("a"), Cell("b", "http://2")
    a.may_answer.clear()
    lists = made(a, b)
    assert await asyncio.wait_for(lists.serving(None), 60) == ["http://2"]
    a.may_answer.set()


async def test_a_stream_of_many_waits_until_a_cell_names_a_controller() -> None:
    a, b = Cell("a"), Cell("b", "http://2")
    b.may_answer.clear()
    waiting = asyncio.create_task(made(a, b).serving(None))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done(), "the first cell has none"
    b.may_answer.set()
    assert await asyncio.wait_for(waiting, 60) == ["http://2"]
