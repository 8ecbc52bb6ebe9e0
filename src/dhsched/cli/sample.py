"""The sample deployment of `dhsched up` and `dhsched demo`: its processes, their options and their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from dhsched.access.viewers import GRANTS, TTL_MAX_S
from dhsched.client import Refused
from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment
from dhsched.local.keys import OPEN, development_keys
from dhsched.local.ports import free_port
from dhsched.store.server.embedded import Embedded

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
    log_level: str = "warning"

    def pool_of(self, number: int) -> str:
        """Return the Pool of Worker `number`, counted from 1: the last of several is in the second Pool."""
        return POOLS[1] if number == self.workers > 1 else POOLS[0]


@dataclass(frozen=True, slots=True)
class Sample:
    """The running sample. `page` is the address of its live's page, if any; `store_pid` is None for another's store."""

    processes: Deployment
    store_pid: int | None
    page: str


@asynccontextmanager
async def sample(
    settings: UpSettings,
    hear: Callable[[str, bytes], None],
    say: Callable[[str], None] = lambda _what: None,
) -> AsyncIterator[Sample]:
    """Start everything and wait until it is ready; stop everything at the end of the block. `hear` is called with each
    line that a process prints; `say` with a text about each part that starts."""
    async with AsyncExitStack() as stack:
        url, store_pid = settings.store, None
        if url is None:
            say("starting a store")
            store = await stack.enter_async_context(Embedded(settings.data))
            url, store_pid = store.address.url(), store.pid
        keys = OPEN
        if settings.access == "keys":
            keys = await stack.enter_async_context(development_keys(url, POOLS, worker_names="worker-*"))
        made = Deployment(url, keys=keys, log_level=settings.log_level, hear=hear, on_end=print_end)
        await stack.enter_async_context(made)
        try:
            page = await asyncio.wait_for(start(made, settings, say), READY_S)
        except TimeoutError:
            raise DhschedError(f"not everything was ready after {READY_S:g} s; try --log-level info") from None
        yield Sample(made, store_pid, page)


def print_end(name: str, status: int) -> None:
    typer.echo(f"{name} ended with status {status}", err=True)


async def start(made: Deployment, settings: UpSettings, say: Callable[[str], None]) -> str:
    """Start everything except the store, and return the address of the live's page; empty without a room."""
    # The Infer-Controller sends Workers the room's address and starts before the room: choose the port first.
    room_port = 0 if settings.runtime in UNSEEN else settings.room_port or free_port()
    room = f"http://127.0.0.1:{room_port}" if room_port else ""
    say("starting two Dispatch replicas and an Infer-Controller")
    for number, port in enumerate(settings.dispatch_ports, 1):
        await made.dispatch(f"dispatch-{number}", port=port)
    await made.infer("infer-1", *(("--room", room) if room else ()), port=settings.infer_port)
    await asyncio.gather(*(each.until_ready() for each in made.processes))
    if room:
        say("starting a room")
        await (await made.room("room-1", port=room_port, metrics_port=settings.metrics_port)).until_ready()
    await made.configure(DIGITAL_IDS)
    say(f"starting {settings.workers} Workers that run {settings.runtime}")
    for number in range(1, settings.workers + 1):
        pool = settings.pool_of(number)
        await made.worker(f"worker-{number}", runtime=settings.runtime, pool=pool, capacity=settings.capacity)
    await made.until_workers(settings.workers)
    if not room:
        return ""
    say(f"placing live {LIVE}")
    return await create(made, room)


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
