"""`dhsched up`: a whole deployment on this machine, to try things out.

A store, two Dispatch replicas, an Infer-Controller, three Workers and, with the extra `avatar`, a room and a live to
watch in it; each is a process of its own that can be killed. Without the extra the Workers print what they are given.
Ctrl-C stops all of it. Nothing is left behind, not even after kill -9 of this process: each child watches a pipe from
here (child.py), and the store's guardian does the same.

Access is by keys, as it would be anywhere else: an admin's key is made for the verbs of this user and written down
where they look (access/minting.py), one for the Workers, and one for the room.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from dhsched.access.minting import KeyFile, Minter
from dhsched.bench.processes import free_port
from dhsched.errors import DhschedError
from dhsched.store.embedded import Embedded

READY_S = 60.0
POOL, DIGITAL_ID, LIVE = "gpu", "demo", "demo"
NOTE = "made by dhsched up"
ROOM_PORT = 7402
FACE, PRINTS = "avatar", "echo"
FACE_NEEDS = ("aiortc", "av", "cv2", "dhsched.avatar", "espeakng_loader", "numpy")
UNSEEN = (PRINTS, "null")
"""Runtimes that publish nothing: they need no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """How much of what, and where. Port 0 takes any free port."""

    workers: int = 3
    capacity: int = 4
    dispatch_ports: tuple[int, int] = (7400, 7410)
    infer_port: int = 7401
    room_port: int = ROOM_PORT
    runtime: str = PRINTS
    data: Path | None = None
    log_level: str = "warning"
    access: str = "keys"


def up(
    workers: Annotated[int, typer.Option(min=1, max=64, help="Workers.")] = 3,
    capacity: Annotated[int, typer.Option(min=1, max=10_000, help="Lives per Worker.")] = 4,
    any_port: Annotated[bool, typer.Option("--any-port", help="Free ports instead of 7400 to 7402 and 7410.")] = False,
    runtime: Annotated[
        str | None, typer.Option(help="As of `run worker`; avatar when its extra is installed, else echo.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Keep the store's data here; without it, it is forgotten.")] = None,
    access: Annotated[str, typer.Option(help="keys: with a development key of its own; open: without.")] = "keys",
    log_level: Annotated[str, typer.Option(help="Of all processes: debug, info, warning or error.")] = "warning",
) -> None:
    """Run a whole deployment on this machine: with the extra `avatar`, faces that speak; else Workers that print."""
    settings = UpSettings(
        workers=workers,
        capacity=capacity,
        dispatch_ports=(0, 0) if any_port else (7400, 7410),
        infer_port=0 if any_port else 7401,
        room_port=0 if any_port else ROOM_PORT,
        runtime=runtime or (FACE if has_face() else PRINTS),
        data=data,
        log_level=log_level,
        access=access,
    )
    asyncio.run(run_up(settings))


def has_face() -> bool:
    """Whether the extra `avatar` is installed."""
    return all(importlib.util.find_spec(module) is not None for module in FACE_NEEDS)


async def run_up(settings: UpSettings) -> None:
    """Everything, until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    with tempfile.TemporaryDirectory(prefix="dhsched-up-") as locks:
        async with Embedded(settings.data) as store:
            keys = await development_keys(store.address.url()) if settings.access == "keys" else NO_KEYS
            children = Children(settings, store.address.url(), Path(locks), keys=keys)
            noted: dict[str, str] = {}
            try:
                await asyncio.wait_for(children.start(), READY_S)
                noted = {url: keys.admin for url in (*children.dispatch, children.infer) if keys.admin}
                KeyFile().put(noted)
                print_what_runs(children, store.pid)
                await stop.wait()
            except TimeoutError:
                raise DhschedError(f"not everything was up after {READY_S:g} s; try --log-level info") from None
            finally:
                KeyFile().drop(noted)
                await children.stop()


class DevelopmentKeys(NamedTuple):
    """For the verbs of this user, for the Workers, and for the room."""

    admin: str
    worker: str
    room: str

    def environment(self, role: str) -> dict[str, str]:
        """How a process of this role is told its key: its arguments could be read by anybody."""
        keys = {"worker": self.worker, "room": self.room}
        return {f"DHSCHED_{role.upper()}_KEY": keys[role]} if keys.get(role) else {}


NO_KEYS = DevelopmentKeys("", "", "")


async def development_keys(store_url: str) -> DevelopmentKeys:
    """New keys; those of an earlier run on the same data are revoked, because nobody has them any more."""
    from dhsched.access.ring import open_ring
    from dhsched.store.redis import RedisStore

    async with await RedisStore.open(store_url) as store:
        ring = await open_ring(store.link, store.keys)
        for old in [key.id for key in ring.api_keys.values() if key.note == NOTE]:
            await ring.revoke(old)
        admin, _ = await ring.create(role="admin", note=NOTE)
        worker, _ = await ring.create(role="worker", names="worker-*", pool=POOL, note=NOTE)
        room, _ = await ring.create(role="room", note=NOTE)
    return DevelopmentKeys(admin, worker, room)


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
    ) -> None:
        """`hear` is given what the children print, line by line; without it, that goes to standard output."""
        self.all: list[Child] = []
        self.dispatch: list[str] = []
        self.infer = ""
        self.access = settings.access
        self.page = ""
        self.runtime = settings.runtime
        self._settings = settings
        self._store = store
        self._locks = locks
        self._keys = keys
        self._hear = hear or (lambda _name, line: os.write(sys.stdout.fileno(), line))
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        settings = self._settings
        shared = ("--store", self._store, "--access", settings.access)
        # Workers are told where the room is by the Infer-Controller, which starts before it.
        room_port = 0 if settings.runtime in UNSEEN else settings.room_port or free_port()
        room = f"http://127.0.0.1:{room_port}" if room_port else ""
        servers = [
            await self._spawn(f"dispatch-{i}", "dispatch", *shared, "--port", str(port))
            for i, port in enumerate(settings.dispatch_ports, 1)
        ]
        told = ("--room", room) if room else ()
        servers.append(await self._spawn("infer-1", "infer", *shared, "--port", str(settings.infer_port), *told))
        *self.dispatch, self.infer = await asyncio.gather(*(each.url for each in servers))
        if room:
            where = ("--dispatch", ",".join(self.dispatch), "--infer", self.infer)
            await (await self._spawn("room-1", "room", "--port", str(room_port), *where)).url
        await self._configure()
        for i in range(1, settings.workers + 1):
            await self._spawn(
                *(f"worker-{i}", "worker", "--runtime", settings.runtime, "--pool", POOL),
                *("--capacity", str(settings.capacity), "--locks", str(self._locks)),
                *("--dispatch", ",".join(self.dispatch)),
            )
        await self._workers_ready()
        if room:
            await self._create()
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

    async def _spawn(self, name: str, role: str, *arguments: str) -> Child:
        command = [sys.executable, "-m", "dhsched.cli.child", "run", role, "--name", name, *arguments]
        process = await asyncio.create_subprocess_exec(
            *command,
            "--log-level",
            self._settings.log_level,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us; they follow.
            env={**os.environ, **self._keys.environment(role)},
        )
        child = Child(name, process, asyncio.get_running_loop().create_future())
        self.all.append(child)
        self._tasks.append(asyncio.create_task(self._follow(child)))
        return child

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

    async def _configure(self) -> None:
        import aiohttp  # Late, as in all verbs: it takes longer to load than most of them to run.

        pool, digital_id = f"/v1/pools/{POOL}", f"/v1/digital-ids/{DIGITAL_ID}"
        async with aiohttp.ClientSession(self.dispatch[0], raise_for_status=True) as http:
            headers = await Minter(http, self.dispatch[0], self._keys.admin).headers()
            async with http.put(pool, json={}, headers=headers):
                pass
            async with http.put(digital_id, json={"pools": [{"pool": POOL}]}, headers=headers):
                pass

    async def _create(self) -> None:
        """A live to look at. With kept data it may be there already, or have ended: then the page says so."""
        import aiohttp

        async with aiohttp.ClientSession(self.dispatch[0]) as http:
            headers = await Minter(http, self.dispatch[0], self._keys.admin).headers()
            body = {"live_id": LIVE, "digital_id": DIGITAL_ID}
            async with http.post(f"/v1/lives?wait_s={READY_S / 2:g}", json=body, headers=headers) as response:
                if response.status not in (200, 201, 410):
                    raise DhschedError(f"the live {LIVE} could not be created: {await response.text()}")

    async def _workers_ready(self) -> None:
        import aiohttp

        async with aiohttp.ClientSession(self.dispatch[0], raise_for_status=True) as http:
            headers = await Minter(http, self.dispatch[0], self._keys.admin).headers()
            while True:
                async with http.get("/v1/workers", headers=headers) as response:
                    found = (await response.json())["workers"]
                if len(found) >= self._settings.workers:
                    return
                await asyncio.sleep(0.1)


def print_what_runs(children: Children, store_pid: int) -> None:
    lines = ["dhsched is up. Ctrl-C stops everything.", "", f"  store       pid {store_pid}"]
    does = f"runs {children.runtime}" if children.page else "prints what it is given below"
    for child in children.all:
        where = child.url.result() if child.url.done() else does
        lines.append(f"  {child.name:<11} pid {child.process.pid:<8} {where}")
    dispatch, infer = children.dispatch[0], children.infer
    mint_hint = []
    if children.access == "keys":
        mint_hint = [f'  curl -H "Authorization: Bearer $(dhsched token mint --url {dispatch})" {dispatch}/v1/lives']
    if children.page:
        lines += ["", "Open this in a browser, type, and kill the Worker that it names:", f"  {children.page}"]
    elif not has_face():
        lines += ["", "For a face that speaks: pip install 'dhsched[avatar]'"]
    lines += [
        "",
        "Try, in another terminal:",
        f"  dhsched live create demo --id hello --url {dispatch}",
        f'  dhsched live push hello "Hello, world." --boundary --infer {infer}',
        f"  dhsched live watch hello --infer {infer}",
        *mint_hint,
        "",
    ]
    os.write(sys.stdout.fileno(), ("\n".join(lines) + "\n").encode())
