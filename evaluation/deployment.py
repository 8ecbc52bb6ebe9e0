"""A whole deployment as processes: store, Dispatch replicas, Infer-Controllers and hosts of Workers."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import aiohttp

from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment as Processes
from dhsched.local.pids import cpu_s, memory_bytes
from dhsched.local.waiting import until
from dhsched.local.zygote import Zygote
from dhsched.store.records.lives import Progress
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore

WAIT_S = 600.0
RETRY_S = 0.05
ASK_S = 120.0
READ_AT_ONCE = 500


class Deployment(Processes):
    """What runs. `hosts` are the pids of processes with one or more Workers each, by name."""

    def __init__(self, server: Embedded, store: RedisStore, http: aiohttp.ClientSession) -> None:
        super().__init__(server.address.url())
        self.server, self.store, self.http = server, store, http
        self.hosts: dict[str, int] = {}
        self._zygote: Zygote | None = None
        self._killed_cpu_s = 0.0

    async def add_host(self, name: str, *, workers: int, capacity: int, drain_s: float = 0.0) -> None:
        """Fork a process with so many Workers of the `null` runtime, named `<name>-<n>`."""
        arguments = ("--name", name, "--workers", str(workers), "--capacity", str(capacity), "--drain-s", str(drain_s))
        where = ("--dispatch", ",".join(await self.dispatch_urls()), "--locks", str(self.folder))
        if self._zygote is None:
            self._zygote = await Zygote.start("evaluation.zygote")
            self.processes.append(self._zygote.process)
        self.hosts[name] = await self._zygote.fork((*arguments, *where), log=self.folder / f"{name}.log")

    def kill_host(self, name: str) -> None:
        pid = self.hosts.pop(name)
        self._killed_cpu_s += cpu_s(pid)
        os.kill(pid, signal.SIGKILL)

    async def until_claimed(self) -> None:
        """Until no live is starting anywhere."""

        async def all_claimed() -> bool:
            return not any(row["starting"] for row in await self.worker_rows())

        await until(all_claimed, "every live to be claimed", WAIT_S)

    async def worker_rows(self) -> list[dict[str, Any]]:
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
        rows: list[Progress | None] = []
        for first in range(0, len(lives), READ_AT_ONCE):
            some = lives[first : first + READ_AT_ONCE]
            rows += await asyncio.gather(*(self.store.records.lives.progress(live) for live in some))
        return [(row.epoch, row.claimed) if row else (0, False) for row in rows]

    async def create_all(self, names: Iterator[str], issuers: int) -> list[float]:
        """Create these lives, so many at a time; how long each took in ms, a refusal for lack of a free slot and
        all."""
        took: list[float] = []

        async def issue(url: str) -> None:
            for name in names:
                took.append(await self.create(url, name))

        urls = cycle(await self.dispatch_urls())
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

    def memory_mb(self) -> dict[str, float]:
        """Resident memory by role, all of its processes together."""
        return {role: round(sum(map(memory_bytes, some)) / 2**20, 1) for role, some in self._pids().items()}

    def cpu_s(self) -> dict[str, float]:
        """CPU time by role so far, that of killed Workers too; `load` is this process, which makes the load."""
        used = {role: sum(map(cpu_s, some)) for role, some in self._pids().items()}
        used["workers"] += self._killed_cpu_s
        return used | {"load": time.process_time()}

    def _pids(self) -> dict[str, list[int]]:
        return {
            "store": [self.server.pid],
            "dispatch": [each.pid for each in self.replicas],
            "infer": [each.pid for each in self.controllers],
            "workers": [*self.hosts.values()],
        }


@asynccontextmanager
async def deployment(*, dispatch: int = 2, infer: int = 1) -> AsyncIterator[Deployment]:
    """Everything but Workers; stopped and removed whatever happens."""
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=ASK_S)
    async with (
        Embedded(appendfsync="everysec") as server,
        await RedisStore.open(server.address) as store,
        aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
        Deployment(server, store, http) as made,
    ):
        for n in range(dispatch):
            await made.dispatch(f"dispatch-{n}")
        for n in range(infer):
            await made.infer(f"infer-{n}")
        await made.configure({"anna": ["gpu"]})
        yield made
