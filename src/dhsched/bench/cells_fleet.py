"""A deployment of one or several cells for a benchmark (cells.py), and its load.

Each cell is a server of its own. One Dispatch replica, one Infer-Controller and the hosts with the `null` Workers
(host.py) are processes of their own, over all cells; this process is the load. Pools and cells are dealt to the Workers
in turn: with as many Pools as cells, or a multiple, Pool number n is in cell number n modulo the number of cells.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, TypeVar

import aiohttp
import msgspec

from dhsched.bench.create import read_response
from dhsched.bench.harness import until_claimed
from dhsched.cells.fixed import cell_of
from dhsched.client.stream import frames_of
from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment
from dhsched.local.pids import cpu_s, memory_bytes
from dhsched.local.process import Process
from dhsched.local.waiting import until
from dhsched.store.records.lives import LiveRow
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore
from dhsched.tasks import cancel

T = TypeVar("T")

ROLES = ("store", "dispatch", "infer", "workers")
STARTS_MAX = 100_000  # Lives that may start on one Worker at once: no create of the benchmark waits for starts.
WORKERS_PER_HOST = 48  # As many in each of 1, 2, 3, 4, 6 or 8 cells.
START_S = 300.0  # Workers that are not ready by then end the benchmark with an error.
CLAIM_S = 1_200.0  # Lives that are not claimed by then end the benchmark with an error.
ACK_S = 60.0  # Items that are not answered, or not acked, by then end the benchmark with an error.
POLL_S = 0.1  # Between two checks whether items are acked or lives claimed.
ROWS = 500  # Lives whose records are read at once.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a deployment is built."""

    cells: int
    pools: tuple[str, ...]
    workers: int
    capacity: int


class Used(NamedTuple):
    """CPU seconds of each role in a span of time."""

    wall_s: float
    cpu_s: dict[str, float]

    @property
    def cores(self) -> dict[str, float]:
        return {role: seconds / self.wall_s for role, seconds in self.cpu_s.items()}


class CellFleet:
    """A running deployment. `names` are its cells, `stores` this process's link to each of them."""

    def __init__(
        self,
        shape: Shape,
        names: Sequence[str],
        servers: Sequence[Embedded],
        stores: Sequence[RedisStore],
        processes: Deployment,
    ) -> None:
        self.shape = shape
        self.names = names
        self.stores = stores
        self._servers = servers
        self._processes = processes
        self.dispatch_url = processes.replicas[0].url
        self.infer_url = processes.controllers[0].url

    @property
    def server(self) -> str:
        """The name and version of the stores."""
        return str(self.stores[0].link.server)

    def cell_of(self, live_id: str) -> int:
        """Return the number of the cell of a live."""
        return self.names.index(cell_of(self.names, f"default/{live_id}"))

    def ids(self, prefix: str, cell: int) -> Iterator[str]:
        """Yield ids of lives in this cell."""
        return (live_id for n in count() if self.cell_of(live_id := f"{prefix}{n}") == cell)

    # -- what its processes use

    async def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of each role so far, user and system. Servers tell theirs to the microsecond, and
        those of the other processes are read from /proc."""
        told = await asyncio.gather(*(store.records.server.info("cpu") for store in self.stores))
        return {
            "store": sum(float(info["used_cpu_user"]) + float(info["used_cpu_sys"]) for info in told),
            **{role: sum(cpu_s(each.pid) for each in some) for role, some in self._roles().items()},
        }

    async def used_by(self, work: Awaitable[Any]) -> Used:
        """Return what each role uses while the work is done."""
        before, began = await self.cpu(), time.monotonic()
        await work
        wall_s, after = time.monotonic() - began, await self.cpu()
        return Used(wall_s, {role: after[role] - before[role] for role in ROLES})

    def memory_mb(self) -> dict[str, float]:
        """Return the resident memory of each role."""
        found = {"store": sum(memory_bytes(each.pid) for each in self._servers)}
        found |= {role: sum(memory_bytes(each.pid) for each in some) for role, some in self._roles().items()}
        return {role: round(found[role] / 2**20, 1) for role in ROLES}

    def _roles(self) -> dict[str, list[Process]]:
        processes = self._processes
        return {
            "dispatch": processes.replicas,
            "infer": processes.controllers,
            "workers": [*processes.workers.values()],
        }

    # -- its lives

    async def until_claimed(self, lives: int) -> None:
        """Wait until none of the lives, of which there are so many, is starting in any cell."""
        await asyncio.gather(*(until_claimed(store, lives, CLAIM_S) for store in self.stores))

    async def rows(self, live_ids: Iterable[str]) -> list[LiveRow]:
        """Return the list rows of these lives."""
        by_cell: defaultdict[int, list[str]] = defaultdict(list)
        for live_id in live_ids:
            by_cell[self.cell_of(live_id)].append(f"default/{live_id}")
        found: list[LiveRow] = []
        for cell, lives in by_cell.items():
            for at in range(0, len(lives), ROWS):
                found += await self.stores[cell].records.lives.rows(lives[at : at + ROWS])
        return found

    async def until_acked(self, live_ids: Sequence[str]) -> None:
        """Wait until these lives have no pending input."""

        async def acked() -> bool:
            return not any(row.pending for row in await self.rows(live_ids))

        await until(acked, f"the input of {len(live_ids)} lives to be acked", ACK_S, every_s=POLL_S)


@asynccontextmanager
async def running(shape: Shape, say: Callable[[str], None]) -> AsyncIterator[CellFleet]:
    """Start every process of a deployment, and yield it once all Workers are ready. Every process ends with this one,
    however it ends."""
    say(f"starting {shape.cells} cell(s) with {shape.workers} Workers")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        servers = [await enter(Embedded(appendfsync="no")) for _ in range(shape.cells)]
        urls = [server.address.url() for server in servers]
        several = shape.cells > 1
        names = [f"c{n}" for n in range(shape.cells)] if several else ["main"]
        cells = [f"{name}={url}" for name, url in zip(names, urls, strict=True)] if several else []
        processes = await enter(Deployment("" if several else urls[0], cells=cells))
        await processes.dispatch("dispatch")
        await processes.infer("infer")
        await processes.configure({pool: [pool] for pool in shape.pools}, starts_create_max=STARTS_MAX)
        for first in range(0, shape.workers, WORKERS_PER_HOST):
            await _start_host(processes, shape, first, names if several else [""])
        await processes.until_workers(shape.workers, START_S)
        # Later than the services, which make the cells: a cell that has been used already belongs to nobody.
        stores = [
            await enter(await RedisStore.open(server.address, cell=name))
            for name, server in zip(names, servers, strict=True)
        ]
        yield CellFleet(shape, names, servers, stores, processes)


async def _start_host(processes: Deployment, shape: Shape, first: int, cells: Sequence[str]) -> None:
    """Start one process with the Workers from number `first` on."""
    name = f"host-{first}"
    some = min(WORKERS_PER_HOST, shape.workers - first)
    turn = first % len(shape.pools)
    pools = [*shape.pools[turn:], *shape.pools[:turn]]
    turn = first % len(cells)
    processes.workers[name] = await processes.start(
        name,
        *("--name", name, "--workers", str(some), "--capacity", str(shape.capacity)),
        *("--pool", ",".join(pools), "--cells", ",".join([*cells[turn:], *cells[:turn]])),
        *("--dispatch", ",".join(await processes.dispatch_urls()), "--locks", str(processes.folder)),
        module="dhsched.bench.host",
    )


# -- load


async def paced(batches: Iterable[Sequence[T]], per_s: float, send: Callable[[Sequence[T]], Awaitable[None]]) -> None:
    """Send batches at an even rate of their members, each after the one before. Who is late makes no pause."""
    began, sent = time.monotonic(), 0
    for batch in batches:
        await asyncio.sleep(max(0.0, began + sent / per_s - time.monotonic()))
        await send(batch)
        sent += len(batch)


class Post(NamedTuple):
    """A request: its path, and its body."""

    path: str
    body: bytes

    @classmethod
    def create(cls, live_id: str, digital_id: str) -> Post:
        return cls("/v1/lives", msgspec.json.encode({"digital_id": digital_id, "live_id": live_id}))

    @classmethod
    def end(cls, live_id: str) -> Post:
        return cls(f"/v1/lives/{live_id}/end", b"{}")


class Posts:
    """Persistent connections to a replica, over which requests are sent; `took_ms` has their times."""

    def __init__(self, host: str, clients: Sequence[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
        self.took_ms: list[float] = []
        self._host = host
        self._clients = clients

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, connections: int) -> AsyncIterator[Posts]:
        host, _, port = url.removeprefix("http://").rpartition(":")
        clients = [await asyncio.open_connection(host, int(port)) for _ in range(connections)]
        try:
            yield cls(host, clients)
        finally:
            for _, writer in clients:
                writer.close()

    async def send(self, posts: Iterable[Post]) -> None:
        """Send the requests, one on each connection at a time, and wait until all are answered."""
        queue = iter(posts)
        await asyncio.gather(*(self._send(*client, queue) for client in self._clients))

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, queue: Iterator[Post]) -> None:
        for path, body in queue:
            head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            began = time.monotonic()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            status, answer = await read_response(reader)
            self.took_ms.append((time.monotonic() - began) * 1000)
            if status not in (200, 201):  # 200: an end, or a create whose call to the store was repeated.
                raise DhschedError(f"POST {path} was answered {status}: {answer[:300]!r}; this is a bug, report it")


class Pusher:
    """A push stream to the controller. At most `in_flight_max` items are unanswered at once; `took_ms` has their
    times."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, in_flight_max: int) -> None:
        self.took_ms: list[float] = []
        self._socket = socket
        self._in_flight_max = in_flight_max
        self._unanswered = 0
        self._sent_at: defaultdict[str, deque[float]] = defaultdict(deque)
        self._answered = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(lambda _: self._answered.set())

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, in_flight_max: int) -> AsyncIterator[Pusher]:
        async with aiohttp.ClientSession() as http, http.ws_connect(f"{url}/v1/stream", max_msg_size=0) as socket:
            pusher = cls(socket, in_flight_max)
            try:
                yield pusher
            finally:
                await cancel(pusher._reading)

    async def push(self, live_ids: Sequence[str]) -> None:
        """Push one item to each of these lives."""
        await self._until_unanswered(self._in_flight_max - len(live_ids))
        now = time.monotonic()
        for live_id in live_ids:
            self._sent_at[live_id].append(now)
        self._unanswered += len(live_ids)
        for frame in frames_of(msgspec.json.encode({"live": live_id, "text": "Hi."}) for live_id in live_ids):
            await self._socket.send_str(frame)

    async def finish(self) -> None:
        """Wait until every item is answered."""
        await self._until_unanswered(0)

    async def _until_unanswered(self, most: int) -> None:
        while self._unanswered > max(0, most):
            if self._reading.done():
                self._reading.result()
                raise DhschedError("the controller closed the push stream; this is a bug, report it")
            self._answered.clear()
            try:
                async with asyncio.timeout(ACK_S):
                    await self._answered.wait()
            except TimeoutError:
                raise DhschedError(f"{self._unanswered} items were not answered within {ACK_S:g} s") from None

    async def _read(self) -> None:
        async for message in self._socket:
            now = time.monotonic()
            for answer in msgspec.json.decode(message.data):
                if "problem" in answer:
                    raise DhschedError(f"a push was refused: {answer['problem']}")
                self.took_ms.append((now - self._sent_at[answer["live"]].popleft()) * 1000)
                self._unanswered -= 1
            self._answered.set()
