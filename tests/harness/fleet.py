"""A small deployment for tests: a store, Dispatch replicas, Infer-Controllers and Workers, in this process.

Everything speaks over real sockets on the loopback address; only the processes are missing. `Record` is a runtime that
writes down what it consumes, which is what the tests look at.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiohttp

from dhsched.dispatch.app import Replica, open_context
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.loops import running
from dhsched.infer.app import Infer, open_infer
from dhsched.infer.settings import InferSettings
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from dhsched.store.server.embedded import Embedded
from dhsched.web import serve
from dhsched.worker.main import Leaving, run_worker
from dhsched.worker.runtimes import Runtime
from dhsched.worker.session import Session
from dhsched.worker.settings import WorkerSettings
from tests.harness.servers import empty_server, running_server

T = TypeVar("T")
OPEN = {"access": "open"}
PATIENCE_S = 60.0  # For what must come. Only a busy machine needs it all.


class Consumed(NamedTuple):
    """One item, as a runtime consumed it."""

    live: str
    worker: str
    epoch: int
    seq: int
    kind: str
    text: str


@dataclass
class Record:
    """A runtime that writes down what it consumes; `seen` is saved as its state."""

    consumed: list[Consumed] = field(default_factory=list)
    opened: list[tuple[str, int, Any]] = field(default_factory=list)
    closed: list[tuple[str, int]] = field(default_factory=list)
    before_ack: Callable[[Session, Consumed], Any] | None = None

    async def __call__(self, session: Session) -> None:
        generation = session.generation
        self.opened.append((session.live, generation.epoch, session.state))
        async for item in session.inputs():
            one = Consumed(session.live, generation.worker, generation.epoch, item.seq, item.kind, item.text)
            self.consumed.append(one)
            session.state = f"seen {item.seq}".encode()
            if self.before_ack is not None:
                await self.before_ack(session, one)
        self.closed.append((session.live, generation.epoch))

    def texts(self, live: str) -> list[str]:
        return [one.text for one in self.consumed if one.live == f"default/{live}"]


class Fleet:
    """The deployment. Everything that was started is stopped with it."""

    def __init__(self, server: Embedded, folder: Path, stack: contextlib.AsyncExitStack) -> None:
        self.server = server
        self.folder = folder
        self.dispatch: list[str] = []
        self.infer: list[str] = []
        self.replicas: list[DispatchContext] = []
        self.controllers: list[Infer] = []
        self.limits = DEFAULT_LIMITS
        self.http: aiohttp.ClientSession
        self._stack = stack

    @property
    def address(self) -> Address:
        return self.server.address

    @property
    def store_url(self) -> str:
        return self.address.url()

    async def start_dispatch(self, *, with_loops: bool = False, **given: Any) -> asyncio.Event:
        """One more replica; set the event to stop it. Without its loops it does nothing by itself."""
        settings = DispatchSettings(**{"port": 0, "refresh_min_s": 0.05, "refresh_max_s": 0.1, **OPEN, **given})
        context = await self._stack.enter_async_context(open_context(self.address, settings))
        self.replicas.append(context)
        replica = Replica(context)
        if with_loops:
            await self._stack.enter_async_context(running(replica.loops(), rng=context.rng))
        return await self.serve(replica.app(), self.dispatch)

    async def start_infer(self, **given: Any) -> asyncio.Event:
        settings = InferSettings(**{"store": self.store_url, "port": 0, **OPEN, **given})
        infer = await self._stack.enter_async_context(open_infer(settings, limits=self.limits))
        self.controllers.append(infer)
        stop = await self.serve(infer.app, self.infer)
        announcing = asyncio.create_task(infer.announce_until(self.infer[-1], stop))
        self._stack.push_async_callback(ended, announcing)
        return stop

    async def start_worker(self, runtime: Any, name: str, capacity: int = 4, **given: Any) -> WorkerTask:
        settings = WorkerSettings(
            pool="gpu",
            capacity=capacity,
            name=name,
            device=given.pop("device", name),
            dispatch=tuple(self.dispatch),
            lock_folder=self.folder,
            drain_s=given.pop("drain_s", 0.0),
            teardown_s=given.pop("teardown_s", 1.0),
            **given,
        )
        worker = WorkerTask(settings, runtime)
        self._stack.push_async_callback(worker.kill)
        return worker

    async def serve(self, app: Any, urls: list[str], port: int = 0) -> asyncio.Event:
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve(app, host="127.0.0.1", port=port, stop_s=1, say=listening.set_result, stop=stop)
        )
        self._stack.push_async_callback(ended, serving)
        self._stack.callback(stop.set)
        urls.append(await listening)
        return stop

    # -- what an application does

    async def post(self, url: str, body: dict[str, Any] | None = None, *, put: bool = False) -> tuple[int, Any]:
        async with self.http.request("PUT" if put else "POST", url, json=body or {}) as response:
            return response.status, await response.json()

    async def sign_in(self, key: str = "") -> None:
        """Show a token of an admin's key, or of a new one, with every request from now on."""
        self.http.headers["Authorization"] = f"Bearer {await self.mint(key or await self.key('admin'))}"

    async def key(self, role: str) -> str:
        """Return a new API key of this role."""
        text, _ = await self.replicas[0].ring.create(role=role)
        return text

    async def mint(self, key: str) -> str:
        """Return a token that the key mints."""
        async with self.http.post(
            f"{self.dispatch[0]}/v1/tokens", json={}, headers={"Authorization": f"Bearer {key}"}
        ) as response:
            return str((await response.json())["token"])

    async def get(self, path: str) -> Any:
        async with self.http.get(self.dispatch[0] + path) as response:
            return await response.json()

    async def configure(self) -> None:
        assert (await self.post(f"{self.dispatch[0]}/v1/pools/gpu", put=True))[0] < 300
        body = {"pools": [{"pool": "gpu"}]}
        assert (await self.post(f"{self.dispatch[0]}/v1/digital-ids/demo", body, put=True))[0] < 300

    async def create(self, live: str) -> Any:
        body = {"live_id": live, "digital_id": "demo"}
        status, placed = await self.post(f"{self.dispatch[0]}/v1/lives?wait_s=10", body)
        assert status in (200, 201), placed
        return placed

    async def push(self, live: str, text: str, **fields: Any) -> tuple[int, Any]:
        return await self.post(f"{self.infer[0]}/v1/lives/{live}/text", {"text": text, **fields})

    async def reassign(self, live: str, **fields: Any) -> Any:
        at = await self.get(f"/v1/lives/{live}")
        body = {"expected_epoch": at["epoch"], **fields}
        return await self.post(f"{self.dispatch[0]}/v1/lives/{live}/reassign", body)


class WorkerTask:
    """A Worker in this process. `kill` is as good as kill -9: nothing is said to anybody."""

    def __init__(self, settings: WorkerSettings, runtime: Runtime) -> None:
        self.leaving = Leaving()
        self.leave = self.leaving.requested
        self.task = asyncio.create_task(run_worker(settings, runtime, self.leaving))

    async def kill(self) -> None:
        await ended(self.task)


async def ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def fleet(
    folder: Path,
    kind: str = "valkey",
    *,
    dispatch: int = 1,
    infer: int = 1,
    with_loops: bool = False,
    replica: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    server: Sequence[str] = (),
    **infer_settings: Any,
) -> AsyncIterator[Fleet]:
    """`server` are further options of the store's server."""
    async with contextlib.AsyncExitStack() as stack:
        runs = running_server(kind, extra=server) if server else empty_server(kind)
        made = Fleet(await stack.enter_async_context(runs), folder, stack)
        made.limits = limits
        made.http = await stack.enter_async_context(aiohttp.ClientSession())
        for _ in range(dispatch):
            await made.start_dispatch(with_loops=with_loops, **(replica or {}))
        for _ in range(infer):
            await made.start_infer(**infer_settings)
        if (replica or {}).get("access") == "keys":
            await made.sign_in()
        await made.configure()
        yield made


async def until(condition: Callable[[], object], what: str, wait_s: float = PATIENCE_S) -> None:
    """Wait for it, or say what did not come."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + wait_s
    while not condition():
        if loop.time() > give_up:
            raise AssertionError(f"waited {wait_s:g} s for {what}")
        await asyncio.sleep(0.01)


async def until_so(
    ask: Callable[[], Awaitable[T]], wanted: Callable[[T], object], what: str, wait_s: float = PATIENCE_S
) -> T:
    """Ask until the answer is the wanted one, and return it, or say what the last one was."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + wait_s
    while True:
        found = await ask()
        if wanted(found):
            return found
        if loop.time() > give_up:
            raise AssertionError(f"waited {wait_s:g} s for {what}; last: {str(found)[:2000]}")
        await asyncio.sleep(0.02)
