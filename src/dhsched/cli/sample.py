"""The sample deployment of `dhsched up` and `dhsched demo`: its processes, their options and their order."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from dhsched.access.viewers import GRANTS, TTL_MAX_S
from dhsched.cli.sample_store import StoreServer, sample_store
from dhsched.client import Refused
from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment
from dhsched.local.keys import OPEN, development_keys
from dhsched.local.ports import free_port
from dhsched.local.process import Process
from dhsched.tasks import cancel

RESTART_S = 3.0  # Pause before a process is started again, in which its lives are placed elsewhere.
RESTARTS_MAX = 20  # A process that has ended more often is not started again.
READY_S = 60.0  # A deployment that is not ready by then is stopped with an error.
POOLS = ("gpu", "spare")
DIGITAL_IDS = {
    "demo": ("gpu", "spare"),
    "anna": ("gpu", "spare"),
    "ben": ("spare", "gpu"),
}
"""DigitalIDs of the sample and their Pools, the preferred Pool first."""
LIVE = "demo"
ROOM_PORT = 7402
METRICS_PORT = 7403
PRINTS = "echo"
UNSEEN = (PRINTS, "null")
"""Runtimes that publish nothing and need no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """Options of the sample deployment. Port 0 takes any free port."""

    workers: int = 3
    capacity: int = 4
    dispatch_ports: tuple[int, int] = (7400, 7410)  # The default addresses of the verbs (addresses.py).
    infer_port: int = 7401
    room_port: int = ROOM_PORT
    metrics_port: int = METRICS_PORT  # Of the room; 0 serves no metrics.
    runtime: str = PRINTS
    access: str = "keys"
    data: Path | None = None
    store: str | None = None
    cells: int = 0  # Number of cells, on different primaries of a Valkey Cluster; 0 for a deployment of one cell.
    log_level: str = "warning"
    with_room: bool = True  # For a runtime that publishes.
    worker_options: tuple[str, ...] = ()

    def pool_of(self, number: int) -> str:
        """Return the Pool of Worker `number`, counted from 1: the last of several is in the second Pool."""
        return POOLS[1] if number == self.workers > 1 else POOLS[0]


@dataclass(frozen=True, slots=True)
class Sample:
    """The running sample. `page` is the address of its live's page, if any; `servers` are those of its store, and none
    where that is somebody's."""

    processes: Deployment
    servers: tuple[StoreServer, ...]
    page: str
    restarts: Restarts


@asynccontextmanager
async def sample(
    settings: UpSettings,
    hear: Callable[[str, bytes], None],
    say: Callable[[str], None] = lambda _what: None,
    *,
    restart: bool = False,
    kind: type[Deployment] = Deployment,
) -> AsyncIterator[Sample]:
    """Start everything and wait until it is ready; stop everything at the end of the block. `hear` is called with each
    line that a process prints; `say` with a text about each part that starts. With `restart`, a process that ends by
    itself or is killed is started again."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(sample_store(settings.store, settings.data, settings.cells, say))
        keys = OPEN
        if settings.access == "keys":
            keys = await stack.enter_async_context(
                development_keys(store.url, POOLS, worker_names="worker-*", cell=store.first_cell)
            )
        restarts = Restarts()
        made = kind(
            store.url,
            cells=store.cells,
            keys=keys,
            log_level=settings.log_level,
            hear=hear,
            on_end=restarts.ended,
        )
        await stack.enter_async_context(made)
        stack.push_async_callback(restarts.stop)
        page = await start_in_time(made, settings, say, restarts)
        restarts.deployment = made if restart else None
        yield Sample(made, store.servers, page, restarts)


class Restarts:
    """Starts processes of `deployment` again when they have ended, and prints both. The end of a process that is
    `expected` is not even printed. `failed` is the first end before everything is ready."""

    def __init__(self) -> None:
        self.deployment: Deployment | None = None  # None while everything starts: an end is an error then.
        self.expected: set[str] = set()
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._counts: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def ended(self, name: str, status: int) -> None:
        if name in self.expected:
            return
        typer.echo(f"{name} ended with status {status}", err=True)
        if self.deployment is None:
            if not self.failed.done():
                self.failed.set_result(f"{name} ended with status {status} before everything was ready")
            return
        self._counts[name] += 1
        if self._counts[name] > RESTARTS_MAX:
            typer.echo(f"{name} is not started again: it has ended {self._counts[name]} times", err=True)
            return
        task = asyncio.create_task(self._restart(self.deployment, name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _restart(self, deployment: Deployment, name: str) -> None:
        await asyncio.sleep(RESTART_S)
        new = await deployment.restart(name)
        typer.echo(f"{name} is started again, pid {new.pid}")

    async def stop(self) -> None:
        """Start nothing again from here on."""
        self.deployment = None
        await cancel(*self._tasks)


def set_by_signals() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets, instead of ending the process."""
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    return stop


async def start_in_time(made: Deployment, settings: UpSettings, say: Callable[[str], None], restarts: Restarts) -> str:
    """Start everything as `start` does. Raise DhschedError if a process ends, or not all is ready after READY_S."""
    starting = asyncio.create_task(start(made, settings, say))
    try:
        await asyncio.wait((starting, restarts.failed), timeout=READY_S, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            return starting.result()
        if restarts.failed.done():
            raise DhschedError(restarts.failed.result())
        raise DhschedError(f"not everything was ready after {READY_S:g} s; try --log-level info")
    finally:
        await cancel(starting)


async def start(made: Deployment, settings: UpSettings, say: Callable[[str], None]) -> str:
    """Start everything except the store, and return the address of the live's page; empty without a room."""
    # The Infer-Controller sends Workers the room's address and starts before the room: choose the port first.
    seen = settings.with_room and settings.runtime not in UNSEEN
    room_port = (settings.room_port or free_port()) if seen else 0
    room = f"http://127.0.0.1:{room_port}" if room_port else ""
    say("starting two Dispatch replicas and an Infer-Controller")
    for number, port in enumerate(settings.dispatch_ports, 1):
        await made.dispatch(f"dispatch-{number}", port=port, environment={"DHSCHED_DISPATCH_ROOM": room})
    await made.infer("infer-1", *(("--room", room) if room else ()), port=settings.infer_port)
    await asyncio.gather(*(each.until_ready() for each in made.processes))
    if room:
        say("starting a room")
        ports = {"port": room_port, "metrics_port": settings.metrics_port}
        consoles = ",".join(each.url for each in made.replicas)
        environment = {"DHSCHED_ROOM_PIDS": str(made.pids), "DHSCHED_ROOM_FRAME_ANCESTORS": consoles}
        await (await made.room("room-1", **ports, environment=environment)).until_ready()
    await made.configure(DIGITAL_IDS)
    workers = "one Worker that runs" if settings.workers == 1 else f"{settings.workers} Workers that run"
    say(f"starting {workers} {settings.runtime}")
    for number in range(1, settings.workers + 1):
        await start_worker(made, settings, number)
    await made.until_workers(settings.workers)
    if not room:
        return ""
    say(f"placing live {LIVE}")
    return await create(made, room)


async def start_worker(made: Deployment, settings: UpSettings, number: int) -> Process:
    """Start Worker `number` in its cell, without waiting until it is ready."""
    cell = cell_of_worker(made, number)
    return await made.worker(
        f"worker-{number}",
        *settings.worker_options,
        *(("--cell", cell) if cell else ()),
        runtime=settings.runtime,
        pool=settings.pool_of(number),
        capacity=settings.capacity,
    )


def cell_of_worker(made: Deployment, number: int) -> str:
    """Return the cell of Worker `number`, counted from 1: the Workers are dealt out over the cells in turn. Empty where
    there is only one cell."""
    return made.cells[(number - 1) % len(made.cells)] if made.cells else ""


async def create(made: Deployment, room: str) -> str:
    """Create the live of the page, and return a link to the page with a viewer token. With kept data the live may have
    ended: then nobody can watch it, and the link has no token."""
    async with made.client() as client:
        try:
            await client.create(LIVE, live_id=LIVE, wait_s=READY_S / 2)
            return (await client.viewer_token(LIVE, GRANTS, ttl_s=TTL_MAX_S)).link(room)
        except Refused as refused:
            if refused.code != "ENDED":
                raise
            return f"{room}/live/{LIVE}"
