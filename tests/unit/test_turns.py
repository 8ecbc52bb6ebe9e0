"""Turns of tenants in the event loop (web/turns.py): the tests decide when a tick begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dhsched.web import turns as web_turns
from dhsched.web.turns import ACTIVE_S, STRANGERS, TICK_MAX, Turns


class Loop:
    """Turns whose ticks and clock a test drives. `begun` has a word for each request that began, in order."""

    def __init__(self) -> None:
        self.now = 100.0
        self.begun: list[str] = []
        self._soon: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.turns = Turns(self._soon.append, lambda: self.now)

    async def ask(self, *tenants: str) -> None:
        """Let a request of each tenant arrive, in this order."""
        for tenant in tenants:
            self._tasks.append(asyncio.create_task(self._request(tenant)))
        await asyncio.sleep(0)

    async def _request(self, tenant: str) -> None:
        if not self.turns.begin(tenant):
            await self.turns.turn(tenant)
        self.begun.append(tenant)

    async def tick(self) -> list[str]:
        """Begin another tick, and return what began in it."""
        before = len(self.begun)
        soon, self._soon[:] = [*self._soon], []
        assert len(soon) <= 1, "one tick is asked for at a time"
        for each in soon:
            each()
        await asyncio.sleep(0)
        return self.begun[before:]

    def give_up(self, n: int) -> None:
        self._tasks[n].cancel()


async def several() -> Loop:
    """A loop on which a and b are active, at the beginning of a tick."""
    loop = Loop()
    await loop.ask("a", "b")
    await loop.tick()
    loop.begun.clear()
    return loop


async def test_a_tenant_that_is_alone_has_no_limit() -> None:
    loop = Loop()
    await loop.ask(*"a" * 100)
    assert loop.begun == ["a"] * 100 and loop.turns.waited == 0


async def test_who_has_few_requests_has_them_served_before_the_rest_of_who_has_many() -> None:
    loop = await several()
    await loop.ask(*"a" * 30, *"bb", "c")
    assert loop.begun == ["a"] * TICK_MAX
    assert await loop.tick() == ["a", "b", "c", "a"]
    assert await loop.tick() == ["b", "a", "a", "a"]
    assert await loop.tick() == ["a"] * TICK_MAX
    assert loop.turns.waited == 33 - TICK_MAX
    await loop.ask("b")  # It comes in a tick that is full.
    assert (await loop.tick()).count("b") == 1
    while await loop.tick():
        pass
    assert sorted(loop.begun) == [*"a" * 30, *"bbb", "c"]


async def test_requests_of_one_tenant_keep_their_order() -> None:
    loop = await several()
    order: list[int] = []

    async def numbered(n: int) -> None:
        if not loop.turns.begin("a"):
            await loop.turns.turn("a")
        order.append(n)

    tasks = []
    for n in range(40):
        tasks.append(asyncio.create_task(numbered(n)))
        await asyncio.sleep(0)
        if n % 7 == 6:
            await (
                loop.tick()
            )  # A place is free in this tick, and the next request does not take it from one that waits.
    while len(order) < 40:
        await loop.tick()
    assert order == sorted(order)


async def test_strangers_have_their_turn_last() -> None:
    loop = await several()
    await loop.ask(*[STRANGERS] * 8, *"a" * 6)
    assert await loop.tick() == ["a"] * TICK_MAX
    assert await loop.tick() == ["a", "a", STRANGERS, STRANGERS]


async def test_a_request_that_was_given_up_takes_no_place() -> None:
    loop = await several()
    await loop.ask(*"a" * 12)
    for n in range(2 + TICK_MAX, 2 + 8):
        loop.give_up(n)
    await asyncio.sleep(0)
    assert await loop.tick() == ["a"] * TICK_MAX
    assert await loop.tick() == []


async def test_a_tenant_is_alone_again_when_the_others_were_silent() -> None:
    loop = await several()
    for _ in range(3):
        loop.now += ACTIVE_S
        await loop.ask("a")
        await loop.tick()
    loop.begun.clear()
    await loop.ask(*"a" * 20)
    assert len(loop.begun) == 20


async def test_only_so_many_requests_of_a_tenant_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_turns, "WAITING_MAX", 3)
    loop = await several()
    await loop.ask(*"a" * (TICK_MAX + 2))
    assert not loop.turns.full("a")
    await loop.ask("a")
    assert loop.turns.full("a") and not loop.turns.full("b")
