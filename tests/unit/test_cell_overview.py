"""The deployment as readers of the feed of changes are shown it: made once for all of them, and never in their way."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dhsched.client.models.summary import Overview
from dhsched.dispatch.api.summary import OVERVIEW_S, SummaryView
from dhsched.dispatch.cells.front import Front


class Made:
    """Makes overviews, each of which takes 10 s by a clock that only this moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.made = 100.0, 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)

    async def make(self) -> Overview | None:
        self.made += 1
        n = self.made
        await self.may_end.wait()
        self.now += 5 * OVERVIEW_S
        return cast(Overview, n)

    def front(self) -> Front:
        front = Front([])
        cast(Any, front)._new_overview = self.make
        return front


async def test_readers_who_waited_for_a_slow_overview_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each of 64 readers waits for those before, and hears no change meanwhile."""
    made = Made(monkeypatch)
    front = made.front()
    assert await asyncio.gather(*(front.overview() for _ in range(5))) == [cast(Overview, 1)] * 5
    assert made.made == 1


async def test_a_cell_that_stands_still_keeps_no_reader_from_its_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Made(monkeypatch)
    front = made.front()
    assert await front.overview() == cast(Overview, 1)
    made.may_end.clear()
    made.now += OVERVIEW_S
    monkeypatch.setattr("dhsched.dispatch.cells.front.NEXT_S", 0.0)
    assert [await front.overview() for _ in range(3)] == [cast(Overview, 1)] * 3, "the last one, while the next is made"
    assert made.made == 2
    made.may_end.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert await front.overview() == cast(Overview, 2)


async def test_a_reader_that_comes_after_a_while_is_not_shown_what_was_then(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    front = made.front()
    await front.overview()
    made.now += 3600
    assert await front.overview() == cast(Overview, 2)


async def test_readers_of_one_cell_share_a_slow_overview(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    context: Any = type("Context", (), {"loop_time": lambda self: made.now})()
    context.records = type("Records", (), {})()
    context.records.replicas = type("Replicas", (), {"all": staticmethod(nobody)})()
    view = SummaryView(context, cast(Any, None))
    cast(Any, view)._summary = made.make
    await asyncio.gather(*(view.overview() for _ in range(5)))
    assert made.made == 1


async def nobody() -> list[Any]:
    return []
