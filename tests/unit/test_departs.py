"""Departs of one frame share a round trip to the store; one that fails does not take the others with it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.dispatch.departs import record_departs
from dhsched.errors import BadValue, StoreUnavailable
from dhsched.links.messages import Depart, Departed
from dhsched.ownership import outcomes as o


class Store:
    """A store that answers all that it was asked at once; `outcomes` are by live."""

    def __init__(self, **outcomes: Any) -> None:
        self.asked: list[str] = []
        self._outcomes = outcomes
        self.unanswered: list[tuple[asyncio.Future[Any], str]] = []

    def depart(self, *, worker: str, live: str, number: int, reason: str) -> asyncio.Future[Any]:
        assert worker == "w#1" and number == 1
        if live == "bad":
            raise BadValue("not a live")
        self.asked.append(live)
        future = asyncio.get_running_loop().create_future()
        self.unanswered.append((future, live))
        return future

    def answer(self) -> None:
        for future, live in self.unanswered:
            outcome = self._outcomes.get(live, o.Departed("departing"))
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


class Case:
    def __init__(self, **outcomes: Any) -> None:
        self.store = Store(**outcomes)
        self.events: list[tuple[str, str]] = []
        self.confirmed: list[str] = []

    async def run(self, *lives: str) -> None:
        events = SimpleNamespace(say=lambda event, **fields: self.events.append((event, fields["live"])))
        context = cast(Any, SimpleNamespace(store=self.store, events=events))
        departs = [Depart(live, 1, "crashed") for live in lives]
        recording = asyncio.create_task(record_departs(context, "w#1", departs, self._confirm))
        await asyncio.sleep(0)
        assert self.confirmed == []
        self.store.answer()
        await recording

    def _confirm(self, said: Departed) -> None:
        self.confirmed.append(said.live)


async def test_all_are_sent_before_the_first_is_answered() -> None:
    case = Case(b=o.Departed("running"))
    await case.run("a", "b", "c")
    assert case.store.asked == case.confirmed == ["a", "b", "c"]
    assert case.events == [("live_crashed", "b")]


async def test_the_others_are_confirmed_when_one_fails() -> None:
    case = Case(b=StoreUnavailable("no answer", unknown=True))
    with pytest.raises(StoreUnavailable):
        await case.run("a", "b", "c")
    assert case.confirmed == ["a", "c"]


async def test_none_behind_a_bad_one_is_recorded() -> None:
    case = Case()
    with pytest.raises(BadValue):
        await case.run("a", "bad", "c")
    assert case.store.asked == case.confirmed == ["a"]
