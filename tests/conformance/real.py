"""A real store under test: its own clock, its whole state, and mutants of its scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from dhsched.errors import StoreUnavailable
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import State, Wake
from dhsched.store.link.address import Address
from dhsched.store.link.greeting import ONE_ARGUMENT, RunScript
from dhsched.store.link.wire import pack
from dhsched.store.raw import read_state
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import Script, load, sources
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
CALL = "local call, number = redis.call, tonumber"
TEST_CALL = """
local function call(command, ...)
  if command == 'SPUBLISH' then
    redis.call('RPUSH', KEYS[1] .. '_wakes', redis.call('GET', KEYS[1] .. '_turn') .. ' ' .. table.concat({ ... }, ' '))
  end
  return redis.call(command, ...)
end
local number = tonumber
"""
"""In the place of CALL in lua/lib/base.lua: every hint that a script publishes is written down, with the turn that the
test has named."""


@cache
def recorded() -> dict[str, str]:
    """What a test holds, and a record of every hint: for subjects whose `wakes` are read."""
    base = sources()["lib/base"]
    assert base.count(CALL) == 1, f"lib/base.lua has no line {CALL!r} any more: bring TEST_CALL up to date"
    return {**HELD, "lib/base": base.replace(CALL, TEST_CALL)}


class Greeted:
    """The entry of a test's link: it begins no home, and greets the one that it is told."""

    home = b""

    async def enter(self, run: RunScript) -> bytes:
        return self.home


@cache
def held_scripts() -> dict[str, Script]:
    """The scripts as they are, but for what the test holds and records."""
    return load(recorded())


class StoreSubject:
    """A RedisStore whose clock and server name the test holds. It starts empty. Its link was opened with `Greeted`."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.limits = store.limits
        self.now = 0
        self._server = ""
        self._remembered: dict[bytes, bytes] = {}
        self._heard: list[tuple[int, Wake]] | None = []

    async def reset(self, now: int = 1000) -> None:
        await self.store.link.call("FLUSHALL")
        self._heard = []
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

    async def set_clock(self, now: int, turn: int = 0) -> None:
        """Set the time of the steps that follow. `turn` tells their wakes from those of steps sent with them."""
        self.now = now
        await self.store.link.call("MSET", self.store.keys.cell + "_clock", now, self.store.keys.cell + "_turn", turn)

    async def wait(self, ms: int) -> None:
        await self.set_clock(self.now + ms)

    async def step(self, name: str, /, **arguments: Any) -> Any:
        self._heard = None
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
        """The cell. Where scripts are `recorded`, its `wakes` are the hints of all steps since it was last read."""
        if self._heard is None:
            key = self.store.keys.cell + "_wakes"
            published = await self.store.link.call("LRANGE", key, 0, -1)
            await self.store.link.call("DEL", key)
            self._heard = [self._read_wake(each.decode()) for each in published]
        wakes = frozenset(wake for _, wake in self._heard)
        return replace(await read_state(self.store.link, self.store.keys.cell_name), wakes=wakes)

    def wakes_of(self, turn: int) -> frozenset[Wake]:
        """The hints of the steps of this turn, as of the state that was read last."""
        return frozenset(wake for at, wake in self._heard or () if at == turn)

    def _read_wake(self, published: str) -> tuple[int, Wake]:
        turn, channel, about = published.split(" ")
        return int(turn), Wake(channel.removeprefix(self.store.keys.prefix), about)


@asynccontextmanager
async def real_subject(
    kind: str, limits: Limits, replacements: Mapping[str, str] | None = None
) -> AsyncIterator[StoreSubject]:
    """A subject on its own server of this kind; `replacements` are mutants of Lua files."""
    scripts = load({**recorded(), **(replacements or {})})
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
