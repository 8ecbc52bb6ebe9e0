"""A turn of `client.speak` beside a client of the test's own: the events come as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from dhsched.client.lives import Client, Event
from dhsched.client.models.input import Pushed
from dhsched.client.speaking import INTERRUPTS_MAX, Heard, Turn
from tests.harness.fleet import until


class Live:
    """The client of one live: stores each item under the next number, and passes events on."""

    def __init__(self, stored_before: int = 0) -> None:
        self.last = stored_before
        self.kinds: list[str] = []
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def say(self, name: str, /, **data: Any) -> None:
        self._events.put_nowait(Event(name, data))

    async def events(self, _live_id: str) -> AsyncIterator[Event]:
        while True:
            yield await self._events.get()

    @asynccontextmanager
    async def stream(self, _live_id: str) -> AsyncIterator[Live]:
        yield self

    async def send(self, _text: str = "", *, kind: str = "text", boundary: bool = False) -> asyncio.Future[Pushed]:
        self.last += 1
        self.kinds.append(kind)
        stored: asyncio.Future[Pushed] = asyncio.get_running_loop().create_future()
        stored.set_result(Pushed("L", "", self.last))
        return stored

    async def push(self, text: str = "", *, kind: str = "text") -> Pushed:
        return await (await self.send(text, kind=kind))

    async def flush(self) -> None: ...


def turn_of(live: Live, tokens: AsyncIterator[str]) -> Turn:
    return Turn(cast(Client, live), "L", tokens)


async def ended(turn: Turn) -> Heard:
    async with asyncio.timeout(60):
        return await turn


async def test_interrupts_before_the_first_sentence_hide_none_behind_it() -> None:
    live, thinks = Live(stored_before=100), asyncio.Event()

    async def tokens() -> AsyncIterator[str]:
        await thinks.wait()
        yield "One. Two."

    turn = turn_of(live, tokens())
    for seq in range(1, INTERRUPTS_MAX + 10):
        live.say("interrupted", seq=seq, after=seq - 1)
    await until(lambda: turn._interrupts, "the interrupts")
    await until(lambda: live._events.empty(), "all of them")
    thinks.set()
    await until(lambda: live.last == 102, "both sentences")
    live.say("interrupted", seq=103, after=101)
    live.say("acked", acked=103)
    assert await ended(turn) == Heard("One. ", complete=False, items=(101,))


async def test_of_many_interrupts_behind_the_first_sentence_the_first_one_counts() -> None:
    live = Live()

    async def tokens() -> AsyncIterator[str]:
        yield "One. Two. Three."
        await asyncio.Event().wait()

    turn = turn_of(live, tokens())
    await until(lambda: live.last == 2, "two sentences")
    for n in range(INTERRUPTS_MAX + 10):
        live.say("interrupted", seq=3 + n, after=1 + n)
    live.say("acked", acked=3)
    assert (await ended(turn)).text == "One. "


@pytest.mark.parametrize("data", [{"seq": [1]}, {"seq": "x"}, {"seq": 1, "chars": "x"}, {"seq": 1, "chars": -2}, {}])
async def test_what_no_runtime_of_ours_would_say_of_its_words_is_ignored(data: dict[str, Any]) -> None:
    live = Live()

    async def tokens() -> AsyncIterator[str]:
        yield "One. Two."

    turn = turn_of(live, tokens())
    await until(lambda: live.last == 2, "two sentences")
    live.say("emitted", epoch=1, n=1, name="spoken", data=data)
    live.say("interrupted", seq=3, after=0)
    live.say("acked", acked=3)
    live.say("emitted", epoch=1, n=2, name="spoken", data={"seq": 0, "chars": 0, "interrupt": 3})
    assert await ended(turn) == Heard("", complete=False, items=())
