"""The processes of a whole deployment on this machine: started in order, followed, stopped with us.

Nothing is left behind, not even after kill -9 of this process: each child watches a pipe from here (child.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import typer

from dhsched.access.development import NOTE
from dhsched.access.key_file import KeyFile
from dhsched.bench.processes import free_port
from dhsched.client import Client, Refused
from dhsched.errors import DhschedError
from dhsched.store.embedded import Embedded

READY_S = 60.0
POOLS = ("gpu", "spare")
DIGITAL_IDS = {
    "demo": ("gpu", "spare"),
    "anna": ("gpu", "spare"),
    "ben": ("spare", "gpu"),
}
"""Demo DigitalIDs, and their Pools: the preferred one first."""
LIVE = "demo"
ROOM_PORT = 7402
PRINTS = "echo"
UNSEEN = (PRINTS, "null")
"""Runtimes that publish nothing: they need no room."""
STORE = "DHSCHED_STORE"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """How much of what, and where. Port 0 takes any free port."""

    workers: int = 3
    capacity: int = 4
    dispatch_ports: tuple[int, int] = (7400, 7410)  # The addresses that the verbs ask (addresses.py).
    infer_port: int = 7401
    room_port: int = ROOM_PORT
    runtime: str = PRINTS
    access: str = "keys"
    data: Path | None = None
    store: str | None = None
    log_level: str = "warning"

    def pool_of(self, number: int) -> str:
        """Workers are numbered from 1. The last of several is in the second Pool."""
        return POOLS[1] if number == self.workers > 1 else POOLS[0]


class DevelopmentKeys(NamedTuple):
    """For the verbs of this user, for the Workers, and for the room."""

    admin: str
    workers: dict[str, str]  # By Pool.
    room: str

    def environment(self, role: str, pool: str = "") -> dict[str, str]:
        """How a process of this role is told its key: its arguments could be read by anybody."""
        key = {"worker": self.workers.get(pool), "room": self.room}.get(role)
        return {f"DHSCHED_{role.upper()}_KEY": key} if key else {}


NO_KEYS = DevelopmentKeys("", {}, "")


async def development_keys(store_url: str) -> DevelopmentKeys:
    """New keys; those of an earlier run on the same data are revoked, because nobody has them any more."""
    from dhsched.access.ring import open_ring
    from dhsched.store.redis import RedisStore

    async with await RedisStore.open(store_url) as store:
        ring = await open_ring(store.link, store.keys)
        for old in [key.id for key in ring.api_keys.values() if key.note == NOTE]:
            await ring.revoke(old)
        admin, _ = await ring.create(role="admin", note=NOTE)
        workers = {
            pool: (await ring.create(role="worker", names="worker-*", pool=pool, note=NOTE))[0] for pool in POOLS
        }
        room, _ = await ring.create(role="room", note=NOTE)
    return DevelopmentKeys(admin, workers, room)


@dataclass(slots=True)
class Child:
    """One process, and where it listens."""

    name: str
    process: asyncio.subprocess.Process
    url: asyncio.Future[str]


class Children:
    """The processes, in the order in which they were started."""

    def __init__(
        self,
        settings: UpSettings,
        store: str,
        locks: Path,
        hear: Callable[[str, bytes], None] | None = None,
        keys: DevelopmentKeys = NO_KEYS,
        say: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """`hear` is given what the children print, line by line; without it, that goes to standard output. `say` is
        told what is being started."""
        self.all: list[Child] = []
        self.dispatch: list[str] = []
        self.infer = ""
        self.page = ""
        self.settings = settings
        self.keys = keys
        self._store = store
        self._locks = locks
        self._say = say
        self._hear = hear or (lambda _name, line: os.write(sys.stdout.fileno(), line))
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        settings = self.settings
        shared = ("--access", settings.access)
        # Workers are told where the room is by the Infer-Controller, which starts before it.
        room_port = 0 if settings.runtime in UNSEEN else settings.room_port or free_port()
        room = f"http://127.0.0.1:{room_port}" if room_port else ""
        self._say("starting two Dispatch replicas and an Infer-Controller")
        servers = [
            await self._spawn(f"dispatch-{i}", "dispatch", *shared, "--port", str(port))
            for i, port in enumerate(settings.dispatch_ports, 1)
        ]
        told = ("--room", room) if room else ()
        servers.append(await self._spawn("infer-1", "infer", *shared, "--port", str(settings.infer_port), *told))
        *self.dispatch, self.infer = await asyncio.gather(*(each.url for each in servers))
        if room:
            self._say("starting a room")
            where = ("--dispatch", ",".join(self.dispatch), "--infer", self.infer)
            await (await self._spawn("room-1", "room", "--port", str(room_port), *where)).url
        async with Client(self.dispatch, self.infer, key=self.keys.admin) as client:
            await self._configure(client)
            self._say(f"starting {settings.workers} Workers that run {settings.runtime}")
            for i in range(1, settings.workers + 1):
                pool = settings.pool_of(i)
                await self._spawn(
                    *(f"worker-{i}", "worker", "--runtime", settings.runtime, "--pool", pool),
                    *("--capacity", str(settings.capacity), "--locks", str(self._locks)),
                    *("--dispatch", ",".join(self.dispatch)),
                    pool=pool,
                )
            while True:
                if len([each async for each in client.workers(status="ready")]) >= settings.workers:
                    break
                await asyncio.sleep(0.1)
            if room:
                self._say(f"placing live {LIVE}")
                await self._create(client)
                self.page = f"{room}/live/{LIVE}"

    async def stop(self) -> None:
        """Close the pipes: each child exits by itself."""
        self._stopping = True
        for child in self.all:
            assert child.process.stdin is not None
            child.process.stdin.close()
        await asyncio.gather(*(child.process.wait() for child in self.all))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _spawn(self, name: str, role: str, *arguments: str, pool: str = "") -> Child:
        command = [sys.executable, "-m", "dhsched.cli.child", "run", role, "--name", name, *arguments]
        process = await asyncio.create_subprocess_exec(
            *command,
            "--log-level",
            self.settings.log_level,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us; they follow.
            # Anybody can read the arguments of a process; its environment, only its user can.
            env=self._environment(role, pool),
        )
        child = Child(name, process, asyncio.get_running_loop().create_future())
        self.all.append(child)
        self._tasks.append(asyncio.create_task(self._follow(child)))
        return child

    def _environment(self, role: str, pool: str) -> dict[str, str]:
        """For a process of this role: its key, and the store's URL if it may reach the store."""
        rest = {name: value for name, value in os.environ.items() if name != STORE}
        store = {STORE: self._store} if role in ("dispatch", "infer") else {}
        return {**rest, **store, **self.keys.environment(role, pool)}

    async def _follow(self, child: Child) -> None:
        """Pass on what a child prints; note where it listens, and that it ended."""
        assert child.process.stdout is not None
        async for line in child.process.stdout:
            if not child.url.done() and b" listens on " in line:
                child.url.set_result(line.decode().split()[-1])
            else:
                self._hear(child.name, line)
        status = await child.process.wait()
        if not child.url.done():
            child.url.set_exception(DhschedError(f"{child.name} ended with status {status} before it listened"))
            child.url.exception()  # Somebody may have given up waiting for it.
        if not self._stopping:
            typer.echo(f"{child.name} ended with status {status}", err=True)

    async def _configure(self, client: Client) -> None:
        for priority, pool in enumerate(POOLS):
            await client.put_pool(pool, {"priority": priority})
        for digital_id, pools in DIGITAL_IDS.items():
            entries = [{"pool": pool, "tier": tier} for tier, pool in enumerate(pools)]
            await client.put_digital_id(digital_id, {"pools": entries})

    async def _create(self, client: Client) -> None:
        """A live to look at. With kept data it may be there already, or have ended: then the page says so."""
        try:
            await client.create(LIVE, live_id=LIVE, wait_s=READY_S / 2)
        except Refused as refused:
            if refused.code != "ENDED":
                raise


@asynccontextmanager
async def deployment(
    settings: UpSettings,
    hear: Callable[[str, bytes], None] | None = None,
    say: Callable[[str], None] = lambda _what: None,
) -> AsyncIterator[tuple[Children, int | None]]:
    """Everything, ready; stopped when the block is left. Also the pid of the store, where we run it."""
    async with AsyncExitStack() as stack:
        locks = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dhsched-up-")))
        url, store_pid = settings.store, None
        if url is None:
            say("starting a store")
            store = await stack.enter_async_context(Embedded(settings.data))
            url, store_pid = store.address.url(), store.pid
        keys = await development_keys(url) if settings.access == "keys" else NO_KEYS
        if keys.admin:
            # The replicas find it there, and write down at which addresses it is good.
            KeyFile().keep(keys.admin)
            stack.callback(KeyFile().forget, keys.admin)
        children = Children(settings, url, locks, hear, keys, say)
        stack.push_async_callback(children.stop)
        try:
            await asyncio.wait_for(children.start(), READY_S)
        except TimeoutError:
            raise DhschedError(f"not everything was up after {READY_S:g} s; try --log-level info") from None
        yield children, store_pid
