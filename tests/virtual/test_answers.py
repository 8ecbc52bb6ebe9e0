"""The judge of Dispatch's answers finds answers that fit into no order, and accepts those that do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from dhsched.client.models.lives import Ended, Generation, Placed
from dhsched.client.models.lives import Live as LiveOut
from dhsched.errors import Refused
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.ownership.state import EMPTY, Live
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from tests.virtual.answers import Answers, Version, version_of

LIVE = "default/L1"


def placed() -> Live:
    """A live at epoch 1 on w#1."""
    given: dict[str, Any] = {"name": "w", "boot": "b", "pool": "gpu", "capacity": 4}
    state, registered = STEPS["register_worker"](EMPTY, 1, DEFAULT_LIMITS, **given)
    worker = registered.worker
    state, _ = STEPS["report"](state, 2, DEFAULT_LIMITS, worker=worker, boot="b")
    create = Create("face", "f")
    state, _ = STEPS["place"](
        *(state, 3, DEFAULT_LIMITS),
        live=LIVE,
        operation="op",
        cause="create",
        create=create,
        candidates=(worker,),
    )
    return state.lives[LIVE]


FIRST = placed()
SECOND = replace(FIRST, epoch=FIRST.epoch + 1, selected="v#1")
OVER = replace(SECOND, state="ended")


class Store:
    """What the store has of the live, changed while a call is open."""

    def __init__(self, now: Live | None = None) -> None:
        self.now = now
        self.wrong: list[str] = []
        self.answers = Answers(lambda live: self.now, self.wrong.append)

    def step(self, now: Live | None) -> None:
        self.now = now
        self.answers.on_step()

    async def ask(self, answer: Any, *during: Live | None) -> None:
        """A call during which the store gets these versions, and which is answered so."""

        async def call() -> Any:
            for each in during:
                self.step(each)
            if isinstance(answer, Exception):
                raise answer
            return answer

        await self.answers.ask(LIVE, "d1", call)


def got(live: Live) -> LiveOut:
    said = version_of(live)
    assert said is not None
    rest = {name: None for name in LiveOut.__struct_fields__ if name not in Version._fields}
    return LiveOut(**said._asdict(), **rest)  # type: ignore[arg-type]


def refused(code: str, **problem: Any) -> Refused:
    return Refused(409, {"code": code, **problem})


async def test_an_answer_of_any_time_between_call_and_answer_is_accepted() -> None:
    store = Store()
    await store.ask(Placed("L1", FIRST.selected, FIRST.epoch), FIRST, SECOND)
    await store.ask(got(SECOND))
    await store.ask(got(SECOND), OVER)
    await store.ask(Ended("L1", "ended"))
    await store.ask(got(OVER))
    assert store.wrong == []
    assert store.answers.counts == {"place": 1, "get": 3, "end": 1}


async def test_an_answer_from_before_the_call_is_found() -> None:
    store = Store(SECOND)
    await store.ask(got(FIRST))
    assert "said get" in store.wrong[0]


async def test_a_generation_that_was_never_committed_is_found() -> None:
    store = Store(FIRST)
    await store.ask(Placed("L1", "x#1", 9), SECOND)
    assert "said place x#1@9" in store.wrong[0]
    store = Store(FIRST)
    await store.ask(Placed("L1", SECOND.selected, SECOND.epoch, again=True, superseded_by=Generation("x#1", 9)), SECOND)
    assert "said superseded by x#1@9" in store.wrong[0]


async def test_a_live_that_is_not_found_although_it_is_there_is_found() -> None:
    store = Store(FIRST)
    with pytest.raises(Refused):
        await store.ask(refused("NOT_FOUND"))
    with pytest.raises(Refused):
        await store.ask(refused("ENDED"))
    with pytest.raises(Refused):
        await store.ask(refused("STALE", current={"worker": "x#1", "epoch": 9}))
    assert [each.split(" of ")[0].removeprefix("answers: d1 said ") for each in store.wrong] == [
        "NOT_FOUND",
        "ENDED",
        "STALE, now x#1@9",
    ]


async def test_an_answer_behind_an_earlier_one_is_found_without_the_model() -> None:
    store = Store(SECOND)
    store.answers.blind = True
    await store.ask(got(OVER))
    await store.ask(got(replace(OVER, epoch=FIRST.epoch)))
    await store.ask(got(SECOND))
    await store.ask(Ended("L1", "closing"))
    assert len(store.wrong) == 3
    assert all("an earlier answer was" in each for each in store.wrong)


async def test_what_overlaps_has_no_order_and_a_store_that_was_set_back_begins_anew() -> None:
    store = Store(FIRST)

    async def meanwhile() -> LiveOut:
        await store.ask(got(SECOND), SECOND)
        return got(FIRST)

    call: Callable[[], Awaitable[LiveOut]] = meanwhile
    await store.answers.ask(LIVE, "d2", call)
    store.now = FIRST
    store.answers.set_back()
    await store.ask(got(FIRST))
    assert store.wrong == []


async def test_an_answer_of_a_call_during_which_the_store_was_set_back_is_of_no_known_history() -> None:
    store = Store(OVER)

    async def set_back() -> LiveOut:
        store.answers.set_back()
        store.step(SECOND)
        return got(OVER)

    await store.answers.ask(LIVE, "d1", set_back)
    await store.ask(got(SECOND))
    assert store.wrong == []
    await store.ask(got(FIRST), FIRST)
    assert len(store.wrong) == 1, "what was said after it is compared again"
