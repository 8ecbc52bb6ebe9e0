"""A real store under test: its own clock, its whole state, and mutants of its scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dhsched.ownership.limits import Limits
from dhsched.ownership.state import State
from dhsched.store.link.address import Address
from dhsched.store.raw import read_state
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import load
from tests.harness.servers import running_server

TEST_CLOCK = "local function clock() return tonumber(redis.call('GET', KEYS[1] .. '_clock')) end"
"""In the place of lua/lib/clock.lua: time stands still until a test moves it."""


class StoreSubject:
    """A RedisStore whose clock the test holds. It starts empty."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.limits = store.limits
        self.now = 0
        self._remembered: dict[bytes, bytes] = {}

    async def reset(self, now: int = 1000) -> None:
        await self.store.link.call("FLUSHALL")
        await self.set_clock(now)

    async def set_clock(self, now: int) -> None:
        self.now = now
        await self.store.link.call("SET", self.store.keys.cell + "_clock", now)

    async def wait(self, ms: int) -> None:
        await self.set_clock(self.now + ms)

    async def step(self, name: str, /, **arguments: Any) -> Any:
        return await getattr(self.store, name)(**arguments)

    async def remember(self) -> None:
        keys = await self.store.link.call("KEYS", "*")
        self._remembered = {key: await self.store.link.call("DUMP", key) for key in keys}

    async def forget(self) -> None:
        await self.store.link.call("FLUSHALL")
        for key, value in self._remembered.items():
            await self.store.link.call("RESTORE", key, 0, value)
        await self.set_clock(self.now)

    async def state(self) -> State:
        return await read_state(self.store.link, self.store.keys.cell_name)


@asynccontextmanager
async def real_subject(
    kind: str, limits: Limits, replacements: Mapping[str, str] | None = None
) -> AsyncIterator[StoreSubject]:
    """A subject on its own server of this kind; `replacements` are mutants of Lua files."""
    scripts = load({"lib/clock": TEST_CLOCK, **(replacements or {})})
    async with (
        running_server(kind) as server,
        await RedisStore.open(server.address, limits=limits, scripts=scripts) as store,
    ):
        subject = StoreSubject(store)
        await subject.reset()
        yield subject


@asynccontextmanager
async def on_store(address: Address, limits: Limits) -> AsyncIterator[StoreSubject]:
    """A subject on a server that is running already, whose data it clears."""
    scripts = load({"lib/clock": TEST_CLOCK})
    async with await RedisStore.open(address, limits=limits, scripts=scripts) as store:
        subject = StoreSubject(store)
        await subject.reset(now=1_000_000)
        yield subject
