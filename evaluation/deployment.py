"""A whole deployment as processes: store, Dispatch replicas, Infer-Controllers and hosts of Workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import aiohttp

from dhsched.bench.processes import OPEN, Child, cpu_s, memory_bytes, start
from dhsched.errors import DhschedError
from dhsched.store.embedded import Embedded
from dhsched.store.redis import RedisStore

VERB = ("-m", "dhsched.cli.child", "run")
QUIET = ("--log-level", "error")
WAIT_S = 600.0
LOOK_S = 0.1
RETRY_S = 0.05
ASK_S = 120.0
READ_AT_ONCE = 500


@dataclass(slots=True)
class Deployment:
    """What runs. `hosts` are processes with one or more Workers each, by name."""

    server: Embedded
    store: RedisStore
    http: aiohttp.ClientSession
    locks: str
    dispatch: list[Child]
    infer: list[Child]
    hosts: dict[str, Child] = field(default_factory=dict)

    async def add_host(self, name: str, *, workers: int, capacity: int, drain_s: float = 0.0) -> Child:
        """A process with so many Workers of the `null` runtime, named `<name>-<n>`."""
        urls = ",".join(child.url for child in self.dispatch)
        arguments = ("--name", name, "--workers", str(workers), "--capacity", str(capacity), "--drain-s", str(drain_s))
        child = await start(name, "-m", "evaluation.host", *arguments, "--dispatch", urls, "--locks", self.locks)
        self.hosts[name] = child
        return child

    def kill_host(self, name: str) -> Child:
        child = self.hosts.pop(name)
        os.kill(child.pid, signal.SIGKILL)
        return child

    async def until_workers(self, count: int) -> None:
        """Until so many Workers have room."""
        await until(lambda: self._room(), count, f"{count} Workers were not placeable")

    async def until_claimed(self) -> None:
        """Until no live is starting anywhere."""
        give_up = time.monotonic() + WAIT_S
        while True:
            starting = sum([row["starting"] for row in await self.workers()])
            if starting == 0:
                return
            if time.monotonic() > give_up:
                raise DhschedError(f"{starting} lives were not claimed within {WAIT_S:g} s")
            await asyncio.sleep(LOOK_S)

    async def workers(self) -> list[dict[str, Any]]:
        """Every Worker that the store knows: its id, load, capacity, what is starting, lost and gone."""
        call, keys = self.store.link.call, self.store.keys
        ids = [one.decode() for one in await call("ZRANGE", keys.of("workers"), 0, -1)]
        fields = ("load", "capacity", "starting", "lost", "gone")
        found = await asyncio.gather(*(call("HMGET", keys.of("worker", one), *fields) for one in ids))
        return [
            {"worker": one, **{name: int(value or 0) for name, value in zip(fields, row, strict=True)}}
            for one, row in zip(ids, found, strict=True)
            if row[1] is not None
        ]

    async def lives_of(self, worker: str) -> list[str]:
        tags = await self.store.link.call("HKEYS", self.store.keys.of("slots", worker))
        return sorted({tag.decode().rpartition("@")[0] for tag in tags})

    async def owners(self, lives: Sequence[str]) -> list[tuple[int, bool]]:
        """Of each live its epoch, and whether it is claimed."""
        call, keys = self.store.link.call, self.store.keys
        rows: list[Any] = []
        for first in range(0, len(lives), READ_AT_ONCE):
            some = lives[first : first + READ_AT_ONCE]
            rows += await asyncio.gather(*(call("HMGET", keys.of("live", live), "epoch", "active") for live in some))
        return [(int(row[0] or 0), bool(row[1])) for row in rows]

    async def create_all(self, names: Iterator[str], issuers: int) -> list[float]:
        """Create these lives, so many at a time; how long each took in ms, a refusal for want of room and all."""
        took: list[float] = []

        async def issue(url: str) -> None:
            for name in names:
                took.append(await self.create(url, name))

        urls = cycle([child.url for child in self.dispatch])
        await asyncio.gather(*(issue(next(urls)) for _ in range(issuers)))
        return took

    async def create(self, url: str, name: str) -> float:
        began = time.monotonic()
        body = {"digital_id": "anna", "live_id": name}
        while True:
            async with self.http.post(f"{url}/v1/lives", json=body) as answer:
                if answer.status in (200, 201):
                    return (time.monotonic() - began) * 1e3
                if answer.status != 503 or time.monotonic() - began > ASK_S:
                    raise DhschedError(f"create of {name} was answered {answer.status}: {await answer.text()}")
            await asyncio.sleep(RETRY_S)

    async def _room(self) -> int:
        return int(await self.store.link.call("ZCARD", self.store.keys.of("room", "gpu")))

    def memory_mb(self) -> dict[str, float]:
        """Resident memory by role, all of its processes together."""
        pids = {
            "store": [self.server.pid],
            "dispatch": [child.pid for child in self.dispatch],
            "infer": [child.pid for child in self.infer],
            "workers": [child.pid for child in self.hosts.values()],
        }
        return {role: round(sum(map(memory_bytes, some)) / 2**20, 1) for role, some in pids.items()}

    def cpu_s(self) -> dict[str, float]:
        pids = {"store": [self.server.pid], "dispatch": [one.pid for one in self.dispatch]}
        pids["infer"] = [one.pid for one in self.infer]
        return {role: round(sum(map(cpu_s, some)), 2) for role, some in pids.items()}


async def until(count: Any, wanted: int, what: str) -> None:
    give_up = time.monotonic() + WAIT_S
    while await count() < wanted:
        if time.monotonic() > give_up:
            raise DhschedError(f"{what} within {WAIT_S:g} s")
        await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def deployment(*, dispatch: int = 2, infer: int = 1) -> AsyncIterator[Deployment]:
    """Everything but Workers; stopped and removed whatever happens."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Embedded(appendfsync="everysec"))
        store = await stack.enter_async_context(await RedisStore.open(server.address))
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=ASK_S)
        )
        http = await stack.enter_async_context(session)
        locks = stack.enter_context(tempfile.TemporaryDirectory(prefix="dhsched-evaluation-"))
        made = Deployment(server, store, http, locks, [], [])
        stack.push_async_callback(_stop, made)
        given = ("--store", server.address.url(), "--port", "0", *OPEN, *QUIET)
        made.dispatch += [await start(f"dispatch-{n}", *VERB, "dispatch", *given) for n in range(dispatch)]
        made.infer += [await start(f"infer-{n}", *VERB, "infer", *given) for n in range(infer)]
        for child in (*made.dispatch, *made.infer):
            await child.until_ready()
        await _configure(made)
        yield made


async def _configure(made: Deployment) -> None:
    url = made.dispatch[0].url
    for path, body in (("pools/gpu", {}), ("digital-ids/anna", {"pools": [{"pool": "gpu"}]})):
        async with made.http.put(f"{url}/v1/{path}", json=body) as answer:
            if answer.status not in (200, 201):
                raise DhschedError(f"PUT {path} was answered {answer.status}: {await answer.text()}")


async def _stop(made: Deployment) -> None:
    for child in (*made.hosts.values(), *made.infer, *made.dispatch):
        with contextlib.suppress(ProcessLookupError):
            await child.stop()
