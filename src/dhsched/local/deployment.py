"""The roles of one deployment, each a process: started one by one, in any number, ended together.

    async with Embedded() as server, Deployment(server.address.url()) as d:
        await d.dispatch("d1")
        await d.infer("c1")
        await d.configure({"anna": ["gpu"]})
        worker = await d.worker("gpu-a", runtime="echo")
        await d.until_workers(1)
        worker.kill()

Starting a role does not wait until it is ready; `until_ready` and the methods that need its URL do.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from dhsched.addresses import INFER
from dhsched.client import Client
from dhsched.errors import Unreachable
from dhsched.local.keys import OPEN, Keys
from dhsched.local.process import CLI, START_S, Process
from dhsched.local.waiting import until
from dhsched.room.pids import WorkerProcess, write_pids

STORE = "DHSCHED_STORE"
CELLS = "DHSCHED_CELLS"
REACH_THE_STORE = ("dispatch", "infer")
ROOM_NEEDS = ("aiortc", "av")


def room_installed() -> bool:
    """Return whether a room can run here: the extra `avatar` has what it needs."""
    return all(importlib.util.find_spec(module) is not None for module in ROOM_NEEDS)


class Deployment:
    """Processes around one store, in the order in which they were started."""

    kind: ClassVar[type[Process]] = Process

    def __init__(
        self,
        store: str = "",
        *,
        folder: Path | None = None,
        cells: Sequence[str] = (),
        keys: Keys = OPEN,
        log_level: str = "error",
        dispatch: Sequence[str] = (),
        infer: Sequence[str] = (),
        hear: Callable[[str, bytes], None] | None = None,
        on_end: Callable[[str, int], None] | None = None,
    ) -> None:
        """`folder` is for device locks and the file of pids; by default a temporary folder. `cells` are the cells of a
        deployment that has several, each as the setting names it. `dispatch` and `infer` are URLs of replicas and
        controllers that run elsewhere. `hear` and `on_end` are called as those of Process, with the process's name as
        first argument."""
        self.keys = keys
        self.cells = tuple(cells)
        self.processes: list[Process] = []
        self.replicas: list[Process] = []
        self.controllers: list[Process] = []
        self.workers: dict[str, Process] = {}
        self._store = store
        self._folder = folder
        self._log_level = log_level
        self._dispatch, self._infer = dispatch, infer
        self._hear = hear
        self._on_end = on_end
        self._worker_processes: dict[str, WorkerProcess] = {}
        self._started: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            # Workers and rooms first: one that outlives its replicas would log that it cannot reach them.
            servers = [*self.replicas, *self.controllers]
            others = [process for process in self.processes if process not in servers]
            await asyncio.gather(*(process.stop() for process in reversed(others)))
            await asyncio.gather(*(process.stop() for process in servers))
        finally:
            await self._stack.aclose()

    @property
    def folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="dhsched-")))
        return self._folder

    @property
    def pids(self) -> Path:
        """Return the file with the pids of the Workers, for a room to show."""
        return self.folder / "pids.json"

    # -- roles

    async def dispatch(self, name: str, *options: str, port: int = 0, **how: Any) -> Process:
        """Start a Dispatch replica. `how` are keyword arguments of `start`, here and below."""
        options = ("--port", str(port), "--access", self._access, *options)
        self.replicas.append(await self._run("dispatch", name, *options, **how))
        return self.replicas[-1]

    async def infer(self, name: str, *options: str, port: int = 0, **how: Any) -> Process:
        """Start an Infer-Controller."""
        options = ("--port", str(port), "--access", self._access, *options)
        self.controllers.append(await self._run("infer", name, *options, **how))
        return self.controllers[-1]

    async def room(self, name: str, *options: str, port: int = 0, metrics_port: int = 0, **how: Any) -> Process:
        """Wait until Dispatch and Infer listen, then start a room."""
        where = ("--dispatch", ",".join(await self.dispatch_urls()), "--infer", ",".join(await self.infer_urls()))
        ports = ("--port", str(port), "--metrics-port", str(metrics_port))
        return await self._run("room", name, *ports, "--access", self._access, *where, *options, **how)

    async def worker(
        self, name: str, *options: str, runtime: str = "echo", pool: str = "gpu", capacity: int = 4, **how: Any
    ) -> Process:
        """Wait until Dispatch listens, then start a Worker. Without `runtime`, give --exec in `options`."""
        what = ("--runtime", runtime, *options) if runtime else options
        where = ("--dispatch", ",".join(await self.dispatch_urls()), "--locks", str(self.folder))
        size = ("--pool", pool, "--capacity", str(capacity))
        self.workers[name] = await self._run("worker", name, *size, *where, *what, pool=pool, **how)
        return self.workers[name]

    async def _run(self, role: str, name: str, *options: str, **how: Any) -> Process:
        arguments = ("run", role, "--name", name, "--log-level", self._log_level, *options)
        return await self.start(name, *arguments, role=role, **how)

    async def start(
        self,
        name: str,
        *arguments: str,
        module: str = CLI,
        role: str = "",
        pool: str = "",
        environment: Mapping[str, str] | None = None,
        hear: Callable[[bytes], None] | None = None,
    ) -> Process:
        """Start any module as a process of this deployment. `role` and `pool` decide which API key the process gets,
        and whether it gets the store's URL and the cells: all in its environment, because other users can read its
        arguments."""
        store, cells = (self._store, " ".join(self.cells)) if role in REACH_THE_STORE else ("", "")
        process = await self.kind.start(
            name,
            *arguments,
            module=module,
            environment={STORE: store, CELLS: cells, **self.keys.environment(role, pool), **(environment or {})},
            hear=hear or (partial(self._hear, name) if self._hear else None),
            on_end=partial(self._on_end, name) if self._on_end else None,
        )
        self.processes.append(process)
        if role == "worker":
            self._worker_processes[name] = WorkerProcess(process.pid, round(time.time() * 1000))
            write_pids(self.pids, self._worker_processes)
        how = {"module": module, "role": role, "pool": pool, "environment": environment, "hear": hear}
        self._started[name] = (arguments, how)
        return process

    async def restart(self, name: str) -> Process:
        """Start a process that has ended once more, as it was started before and at the same port, in its place."""
        [old] = [process for process in self.processes if process.name == name]
        arguments, how = self._started[name]
        if old.url:
            port = old.url.rpartition(":")[2]
            at = arguments.index("--port") + 1
            arguments = (*arguments[:at], port, *arguments[at + 1 :])
        new = await self.start(name, *arguments, **how)
        self.processes.remove(new)
        for places in (self.processes, self.replicas, self.controllers):
            places[:] = [new if process is old else process for process in places]
        if name in self.workers:
            self.workers[name] = new
        return new

    async def remove(self, name: str) -> None:
        """End a process, and forget it."""
        [process] = [process for process in self.processes if process.name == name]
        await process.stop()
        for places in (self.processes, self.replicas, self.controllers):
            places[:] = [each for each in places if each is not process]
        self.workers.pop(name, None)

    @property
    def _access(self) -> str:
        return "keys" if self.keys.admin else "open"

    # -- addresses, configuration, waiting

    async def dispatch_urls(self) -> list[str]:
        """Wait until every replica listens, and return their URLs."""
        return [*self._dispatch, *[await replica.until_ready() for replica in self.replicas]]

    async def infer_urls(self) -> list[str]:
        """Wait until every Infer-Controller listens, and return their URLs."""
        return [*self._infer, *[await controller.until_ready() for controller in self.controllers]]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Yield a client of this deployment with its admin key."""
        infer = await self.infer_urls() or INFER
        async with Client(await self.dispatch_urls(), infer, key=self.keys.admin) as client:
            yield client

    async def configure(self, digital_ids: Mapping[str, Sequence[str]], **pool_settings: Any) -> None:
        """Put these DigitalIDs and their Pools, all with these settings; the preferred Pool comes first."""
        pools = dict.fromkeys(pool for some in digital_ids.values() for pool in some)
        async with self.client() as client:
            for priority, pool in enumerate(pools):
                await client.put_pool(pool, {"priority": priority, **pool_settings})
            for digital_id, some in digital_ids.items():
                entries = [{"pool": pool, "tier": tier} for tier, pool in enumerate(some)]
                await client.put_digital_id(digital_id, {"pools": entries})

    async def until_workers(self, count: int, wait_s: float = START_S) -> None:
        """Wait until `count` Workers are ready, in the cells that can be asked."""
        async with self.client() as client:

            async def ready() -> bool:
                found = 0
                # At the end of the list a client is told of a cell that cannot be asked: that one may still start.
                with contextlib.suppress(Unreachable):
                    async for _ in client.workers(status="ready"):
                        found += 1
                return found >= count

            await until(ready, f"{count} Workers to be ready", wait_s)
