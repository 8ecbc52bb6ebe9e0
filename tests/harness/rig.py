"""A deployment of real processes that many runs share: store, Dispatch, two Infer-Controllers, Workers as needed.

Workers reach each controller through a proxy that can leave their connections half open; the test itself goes straight
to everything. Workers are started once and used again: one that a run killed is replaced by the next run that needs it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from dhsched.access.ring import open_ring
from dhsched.local import process as local
from dhsched.local.ports import free_port
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore
from dhsched.tokens import Boot, Tokens
from tests.harness.processes import Process, Processes
from tests.harness.proxy import Proxy
from tests.harness.servers import empty_server

READY_S = 60.0
CAPACITY = 8
DEADLINE_S = 1.0
RUNTIME = "tests.harness.stubborn:tell"
SETTINGS = {
    # A frozen Worker stays selectable. One that is killed is lost a second after its links close.
    "DHSCHED_DISPATCH_WORKER_TTL_S": "120",
    "DHSCHED_DISPATCH_REFRESH_MIN_S": "0.05",
    "DHSCHED_DISPATCH_REFRESH_MAX_S": "0.1",
    "DHSCHED_DISPATCH_LOSSES_MAX": "64",
    "DHSCHED_DISPATCH_STALLS_MAX": "64",
    "DHSCHED_INFER_DEADLINE_S": str(DEADLINE_S),
}


class RigWorker:
    """A Worker process; `id` is its boot's, as soon as it has one."""

    def __init__(self, process: Process, name: str, lock: Path, before: str) -> None:
        self.process = process
        self.name = name
        self._lock = lock
        self._before = before  # What the lock file said of the boot that this one replaces.
        self._id = ""

    @property
    def id(self) -> str:
        if not self._id and self.running and (found := content_of(self._lock)) != self._before:
            self._id = found
        return self._id

    @property
    def running(self) -> bool:
        return self.process.returncode is None


class Rig:
    def __init__(self, server: Embedded, folder: Path, credit: int, store: RedisStore, deployment: Processes) -> None:
        self.server = server
        self.folder = folder
        self.credit = credit
        self.store = store
        self.deployment = deployment
        self.proxies: list[Proxy] = []
        self.infer: list[str] = []
        self.dispatch = ""
        self.all: list[RigWorker] = []
        self.http: aiohttp.ClientSession
        self.tokens: Tokens
        self._names = 0

    @property
    def controllers(self) -> list[local.Process]:
        return self.deployment.controllers

    # -- life

    async def start(self, stack: AsyncExitStack) -> None:
        self.http = await stack.enter_async_context(aiohttp.ClientSession())
        self.tokens = Tokens(await open_ring(self.store.link, self.store.keys))
        await self.deployment.dispatch("dispatch-1", environment=SETTINGS)
        for n in (1, 2):
            port = free_port()
            proxy = Proxy(f"to-infer-{n}", port)
            await proxy.start()
            stack.push_async_callback(proxy.stop)
            self.proxies.append(proxy)
            options = ("--advertise", f"http://127.0.0.1:{proxy.port}", "--credit", str(self.credit))
            await self.deployment.infer(f"infer-{n}", *options, port=port, environment=SETTINGS)
        [self.dispatch] = await self.deployment.dispatch_urls()
        self.infer = await self.deployment.infer_urls()
        for _ in range(2):
            await self.start_worker()
        for pool in ("gpu", "slow"):
            await self.call("PUT", f"{self.dispatch}/v1/pools/{pool}")
            await self.call("PUT", f"{self.dispatch}/v1/digital-ids/{pool}", {"pools": [{"pool": pool}]})

    # -- Workers

    async def start_worker(self, name: str = "", device: str = "") -> RigWorker:
        if not name:
            self._names += 1
            name = f"w{self._names}"
        lock = self.folder / f"{device or name}.lock"
        before = content_of(lock)
        process = await self.deployment.worker(name, "--device", lock.stem, runtime=RUNTIME, capacity=CAPACITY)
        worker = RigWorker(process, name, lock, before)
        self.all.append(worker)
        return worker

    async def workers(self, count: int) -> list[RigWorker]:
        """So many Workers that take lives."""
        running = [each for each in self.all if each.running]
        while len(running) < count:
            running.append(await self.start_worker())
        await self.ready(running[:count])
        return running[:count]

    async def ready(self, workers: list[RigWorker]) -> None:
        give_up = asyncio.get_running_loop().time() + READY_S
        while asyncio.get_running_loop().time() < give_up:
            listed = (await self.get("/v1/workers?limit=1000"))["workers"]
            status = {each["worker"]: each["status"] for each in listed}
            if all(status.get(each.id) == "ready" for each in workers):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{[(each.name, each.id) for each in workers]} are not ready: {status}")

    async def reports(self, worker: RigWorker) -> None:
        """Wait for its next report. One that has just hung up on a slow replica, and then freezes, is lost at once."""
        give_up = asyncio.get_running_loop().time() + READY_S
        key = self.store.keys.of("worker", worker.id)
        before = await self.store.link.call("HGET", key, "beat")
        while await self.store.link.call("HGET", key, "beat") == before:
            assert asyncio.get_running_loop().time() < give_up, f"{worker.id} does not report"
            await asyncio.sleep(0.05)

    async def token(self, worker: str) -> str:
        """A token for a boot: what a second socket of that Worker would show."""
        boot = await self.store.link.call("HGET", self.store.keys.of("worker", worker), "boot")
        return self.tokens.issue(Boot(worker, boot.decode(), worker.partition("#")[0], "gpu", CAPACITY))

    # -- HTTP

    async def call(self, method: str, url: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        async with self.http.request(method, url, json=body or {}) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        async with self.http.get(self.dispatch + path) as response:
            return await response.json()


@asynccontextmanager
async def rig(folder: Path, kind: str, credit: int) -> AsyncIterator[Rig]:
    os.makedirs(folder, exist_ok=True)
    async with (
        empty_server(kind) as server,
        await RedisStore.open(server.address) as store,
        Processes(server.address.url(), folder=folder) as deployment,
        AsyncExitStack() as stack,
    ):
        made = Rig(server, folder, credit, store, deployment)
        await made.start(stack)
        yield made


def content_of(lock: Path) -> str:
    return lock.read_text().strip() if lock.exists() else ""


async def until_true(condition: Any, what: str, wait_s: float = READY_S) -> None:
    give_up = asyncio.get_running_loop().time() + wait_s
    while not condition():
        if asyncio.get_running_loop().time() > give_up:
            raise AssertionError(f"waited {wait_s:g} s for {what}")
        await asyncio.sleep(0.02)
