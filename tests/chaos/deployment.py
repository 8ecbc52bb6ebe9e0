"""Store, proxies and processes of a run: started, killed, paused, brought back, and gone at the end.

Controllers reach the store, and Workers reach each controller, through proxies. The driver itself goes
straight to everything: it has to know what is true.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dhsched.local.ports import free_port
from dhsched.local.process import Process
from dhsched.local.zygote import Zygote
from tests.chaos.access import Access
from tests.chaos.cluster import Cluster
from tests.chaos.histories import Histories
from tests.chaos.hostile_values import HOSTILE
from tests.chaos.runtime import RECORDS
from tests.chaos.store import Replicated, Store, StoreKind
from tests.chaos.zygote import CLOCK
from tests.harness.proxy import Proxy, stopped

ROOT = Path(__file__).parents[2]
POOL, DIGITAL_ID = "gpu", "demo"
HOSTILE_POOL, LENT_ID = "evil", "lent"
"""The Pool of the hostile Worker, and the DigitalID of the lives that may be on it."""
MARK = "DHSCHED_CHAOS_RUN"
"""In the environment of every process of a run: how one that was left behind is found."""
WORKER_TTL_S = 1.5
DISPATCH_SETTINGS = {
    "DHSCHED_DISPATCH_WORKER_TTL_S": str(WORKER_TTL_S),
    "DHSCHED_DISPATCH_LIVENESS_S": "0.2",
    "DHSCHED_DISPATCH_RECONCILE_S": "1",
    "DHSCHED_DISPATCH_FULL_EVERY_S": "5",
}


@dataclass(frozen=True, slots=True)
class Size:
    """How many of what."""

    dispatch: int = 3
    infer: int = 2
    workers: int = 8
    capacity: int = 8
    lives: int = 36
    lent: int = 6
    """Lives that may be on the hostile Worker, if there is one."""


@dataclass(slots=True)
class Role:
    """A process that is always there, but for the time after it was killed."""

    name: str
    arguments: list[str]
    environment: dict[str, str]
    pid: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    exits: list[int] = field(default_factory=list)
    down_until: float = 0.0
    wanted: bool = True

    @property
    def kind(self) -> str:
        return self.name.partition("-")[0]


class InRoot(Process):
    """A process that can import the tests."""

    folder = ROOT


class Deployment:
    """Everything of one run, in one folder."""

    def __init__(
        self,
        folder: Path,
        size: Size,
        histories: Histories,
        *,
        mutant: str = "",
        store: StoreKind = "replicated",
        server: str | None = None,
        hostile: bool = False,
    ) -> None:
        self.size = size
        self.hostile = hostile
        self.access = Access()
        self.folder = folder
        self.records = folder / "records"
        self.run_id = f"{os.getpid()}-{time.monotonic_ns()}"
        self.roles: dict[str, Role] = {}
        self.proxies: dict[str, Proxy] = {}
        self.store: Store
        if store == "cluster":
            self.store = Cluster(folder, self._proxy, server)
        else:
            self.store = Replicated(folder, self._proxy, histories, server)
        self.dispatch: list[str] = []
        self.infer: list[str] = []
        self.room = f"http://127.0.0.1:{free_port()}" if hostile else ""
        self.ended_at: dict[int, float] = {}
        """When each process ended that did, by pid."""
        self._mutant = mutant
        self._zygote: Zygote
        self._by_pid: dict[int, Role] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- life

    async def start(self) -> None:
        self.records.mkdir()
        os.environ[MARK] = self.run_id
        await self.store.start()
        if self.hostile:
            async with self.store.link() as link:
                await self.access.make(link, HOSTILE, HOSTILE_POOL, self.size.capacity)
        how = (self._mutant, *(["room"] if self.room else []))
        self._zygote = await Zygote.start("tests.chaos.zygote", *how, on_end=self._on_end, kind=InRoot)
        for n in range(1, self.size.dispatch + 1):
            await self._controller("dispatch", n)
        for n in range(1, self.size.infer + 1):
            await self._controller("infer", n)
        through = ",".join(
            f"http://127.0.0.1:{self.proxies[f'to-dispatch-{n}'].port}" for n in range(1, self.size.dispatch + 1)
        )
        for n in range(1, self.size.workers + 1):
            await self._worker(f"worker-{n}", POOL, through)
        if self.hostile:
            await self._worker(HOSTILE, HOSTILE_POOL, ",".join(self.dispatch), who="hostile")
            arguments = ["run", "room", "--name", "room", "--port", self.room.rpartition(":")[2], "--metrics-port", "0"]
            arguments += ["--dispatch", ",".join(self.dispatch), "--infer", ",".join(self.infer)]
            arguments += ["--log-level", "warning"]
            await self._add(Role("room", arguments, self.access.environment("room", "room")))

    async def stop(self) -> None:
        """Stop everything, whatever state it is in."""
        for role in self.roles.values():
            role.wanted = False
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if hasattr(self, "_zygote"):
            await self._zygote.process.stop()
        await stopped([*self.proxies.values()])
        self.store.let_go_on()
        await self.store.stop()
        os.environ.pop(MARK, None)

    def leaked(self) -> list[str]:
        """Processes of this run that are still there."""
        mark, found = f"{MARK}={self.run_id}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(
                            f"{entry.name} {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}"
                        )
        return found

    async def _controller(self, kind: str, n: int) -> None:
        name, port = f"{kind}-{n}", free_port()
        to_it = await self._proxy(f"to-{name}", port)
        arguments = ["run", kind, "--name", name, "--port", str(port), "--log-level", "warning"]
        arguments += ["--access", "keys" if self.hostile else "open"]
        arguments += ["--store", await self.store.url_for(name)]
        if kind == "infer" and self.room:
            arguments += ["--room", self.room]
        if kind == "infer":
            arguments += ["--advertise", f"http://127.0.0.1:{to_it.port}"]
        (self.dispatch if kind == "dispatch" else self.infer).append(f"http://127.0.0.1:{port}")
        await self._add(Role(name, arguments, DISPATCH_SETTINGS))

    async def _worker(self, name: str, pool: str, dispatch: str, who: str = "worker") -> None:
        clock = self._clock_of(name)
        clock.write_text("0")
        arguments = ["run", "worker", "--runtime", "tests.chaos.runtime:checked", "--pool", pool, "--name", name]
        arguments += ["--capacity", str(self.size.capacity), "--dispatch", dispatch, "--locks", str(self.folder)]
        arguments += ["--drain-s", "3", "--teardown-s", "1", "--log-level", "warning"]
        environment = {CLOCK: str(clock), RECORDS: str(self.records), **self.access.environment("worker", who)}
        await self._add(Role(name, arguments, environment))

    async def _proxy(self, name: str, target: int) -> Proxy:
        proxy = self.proxies[name] = Proxy(name, target)
        await proxy.start()
        return proxy

    async def _add(self, role: Role) -> None:
        self.roles[role.name] = role
        await self._fork(role)

    # -- processes

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    async def _fork(self, role: Role) -> None:
        role.ended.clear()
        role.pid = await self._zygote.fork(role.arguments, log=self.log_of(role.name), environment=role.environment)
        self._by_pid[role.pid] = role

    def _on_end(self, pid: int, status: int) -> None:
        """Start again whatever ended, as an init system does."""
        if (role := self._by_pid.pop(pid, None)) is not None:
            role.exits.append(status)
            self.ended_at[pid] = time.monotonic()
            role.ended.set()
            if role.wanted:
                self._spawn(self._again(role))

    async def _again(self, role: Role) -> None:
        await asyncio.sleep(max(0.1, role.down_until - time.monotonic()))
        await self._fork(role)

    def signal(self, name: str, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.roles[name].pid in self._by_pid:
                os.kill(self.roles[name].pid, number)

    def kill(self, name: str, down_s: float) -> None:
        self.roles[name].down_until = time.monotonic() + down_s
        self.signal(name, signal.SIGKILL)

    def retire(self, name: str) -> None:
        """End a process in good order, for good."""
        self.roles[name].wanted = False
        self.signal(name, signal.SIGTERM)

    def kill_all(self, kind: str) -> None:
        for name in [name for name, role in self.roles.items() if role.kind == kind]:
            self.kill(name, 0.0)

    def set_clock(self, name: str, offset_s: float) -> None:
        self._clock_of(name).write_text(f"{offset_s:<31.3f}")

    def _clock_of(self, name: str) -> Path:
        return self.folder / f"clock-{name}"

    def heal(self) -> None:
        """Everything that was paused or hindered goes on. What is down is on its way up already."""
        for role in self.roles.values():
            role.down_until = 0.0
            self.signal(role.name, signal.SIGCONT)
        for proxy in self.proxies.values():
            proxy.heal()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
