"""A real store under test: its own clock, its whole state, and mutants of its scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from dhsched.errors import StoreUnavailable
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import State
from dhsched.store.link.address import Address
from dhsched.store.link.greeting import ONE_ARGUMENT, RunScript
from dhsched.store.link.wire import pack
from dhsched.store.raw import read_state
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import Script, load
from tests.conformance.subjects import Home
from tests.harness.servers import running_server

TEST_CLOCK = "local function clock() return tonumber(redis.call('GET', KEYS[1] .. '_clock')) end"
"""In the place of lua/lib/clock.lua: time stands still until a test moves it."""
TEST_SERVER = """
local function server() return redis.call('GET', KEYS[1] .. '_server') or '' end
local function server_is(name) return server() == name end
"""
"""In the place of lua/lib/server.lua: the server has the name that a test gave it, and none at the start."""
HELD = {"lib/clock": TEST_CLOCK, "lib/server": TEST_SERVER}
"""What a test holds in its hand."""


class Greeted:
    """The entry of a test's link: it begins no home, and greets the one that it is told."""

    home = b""

    async def enter(self, run: RunScript) -> bytes:
        return self.home


@cache
def held_scripts() -> dict[str, Script]:
    """The scripts as they are, but for what the test holds."""
    return load(HELD)


class StoreSubject:
    """A RedisStore whose clock and server name the test holds. It starts empty. Its link was opened with `Greeted`."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.limits = store.limits
        self.now = 0
        self._server = ""
        self._remembered: dict[bytes, bytes] = {}

    async def reset(self, now: int = 1000) -> None:
        await self.store.link.call("FLUSHALL")
        await self.serve("")
        await self.greet("")
        await self.set_clock(now)

    async def serve(self, server: str) -> None:
        self._server = server
        await self.store.link.call("SET", self.store.keys.cell + "_server", server)

    async def greet(self, home: str) -> None:
        entry = self.store.link._greeting.entry
        assert isinstance(entry, Greeted) and self.store.link._wire is not None
        entry.home = home.encode()
        self.store.link._wire.tail = pack((entry.home,))[len(ONE_ARGUMENT) :]

    async def set_clock(self, now: int) -> None:
        self.now = now
        await self.store.link.call("SET", self.store.keys.cell + "_clock", now)

    async def wait(self, ms: int) -> None:
        await self.set_clock(self.now + ms)

    async def step(self, name: str, /, **arguments: Any) -> Any:
        if name == "enter":
            await self.serve(arguments["server"])
            outcome = await self.store.enter(**arguments)
            await self.greet(arguments["server"])
            return outcome
        try:
            return await getattr(self.store, name)(**arguments)
        except StoreUnavailable as error:
            if "(HOME " in str(error) and not error.unknown:
                return Home()
            raise

    async def remember(self) -> None:
        keys = await self.store.link.call("KEYS", "*")
        self._remembered = {key: await self.store.link.call("DUMP", key) for key in keys}

    async def forget(self) -> None:
        await self.store.link.call("FLUSHALL")
        for key, value in self._remembered.items():
            await self.store.link.call("RESTORE", key, 0, value)
        await self.serve(self._server)
        await self.set_clock(self.now)

    async def state(self) -> State:
        return await read_state(self.store.link, self.store.keys.cell_name)


@asynccontextmanager
async def real_subject(
    kind: str, limits: Limits, replacements: Mapping[str, str] | None = None
) -> AsyncIterator[StoreSubject]:
    """A subject on its own server of this kind; `replacements` are mutants of Lua files."""
    scripts = load({**HELD, **(replacements or {})})
    async with (
        running_server(kind) as server,
        await RedisStore.open(server.address, limits=limits, scripts=scripts, entry=Greeted()) as store,
    ):
        subject = StoreSubject(store)
        await subject.reset()
        yield subject


@asynccontextmanager
async def on_store(address: Address, limits: Limits) -> AsyncIterator[StoreSubject]:
    """A subject on a server that is running already, whose data it clears."""
    async with await RedisStore.open(address, limits=limits, scripts=held_scripts(), entry=Greeted()) as store:
        subject = StoreSubject(store)
        await subject.reset(now=1_000_000)
        yield subject
