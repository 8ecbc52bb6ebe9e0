"""The whole input path, compared with peers: push over a WebSocket, through the fence, to a runtime, and its ack.

Every part is a process of its own: store, Dispatch, Infer-Controller, a Worker with all lives, and the pusher (this
process). At full speed: items per second, and CPU time of the store and the controller per item. At a rate that every
path can follow: how late an item is. The peers take the same items over the same kind of WebSocket through the same
processes (input_peers.py): redis-py with pipelined streams and nothing else, redis-py with what a team would write
instead of dhsched, and NATS JetStream; peer_clients.py says what each does. `fence_cost` compares our path with the
same path without the guard in the scripts of release and ack (input_unfenced.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import msgspec

from dhsched.bench.ends import stamp
from dhsched.bench.harness import percentile, place_all
from dhsched.client.stream import frames_of
from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment
from dhsched.local.pids import cpu_s
from dhsched.local.waiting import until
from dhsched.ownership.limits import Limits
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore

PEERS = ("redispy_pipelined", "same_job", "nats")
TEXT = b" A sentence of the usual length."
FRAME_ITEMS = 50  # Items per frame at full speed.
WINDOW = 2_000  # With this many unanswered items the pusher waits.
WAIT_S = 120.0  # Items that are not consumed by then end the benchmark with an error.
CLAIM_S = 60.0  # Lives that are not claimed by then end the benchmark with an error.


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    lives: int = 2_000
    items: int = 50_000
    rate: int = 2_000
    paced_s: float = 2.0
    rounds: int = 3
    peers: bool = True


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one path in one round; CPU times are per item, `middle_us` is the controller's or the front's."""

    items_per_s: float
    store_us: float
    middle_us: float
    p50_ms: float
    p99_ms: float
    push_p99_ms: float

    @property
    def server_us(self) -> float:
        return self.store_us + self.middle_us


async def bench_input(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Open all paths, measure them in turn in each round, so that other load affects all of them, and return the
    figures."""
    ways: dict[str, Callable[[Size], AbstractAsyncContextManager[Path]]] = {
        "ours": our_path,
        "unfenced": partial(our_path, fenced=False),
    }
    if size.peers:
        from dhsched.bench.input_peers import PATHS

        ways |= PATHS
    rounds: dict[str, list[Figures]] = {name: [] for name in ways}
    async with contextlib.AsyncExitStack() as stack:
        paths: dict[str, Path] = {}
        for name, way in ways.items():
            say(f"starting {name}")
            paths[name] = await stack.enter_async_context(way(size))
            await saturate(paths[name], size.items // 10)
        for n in range(size.rounds):
            for name, path in paths.items():
                rounds[name].append(await measure(path, size))
                say(f"round {n + 1}, {name}: {rounds[name][-1].items_per_s:.0f} items/s")
    servers = {f"{name}_server": paths[name].server for name in PEERS if name in paths}
    return {
        "bench": "input",
        "lives": size.lives,
        "server": paths["ours"].server,
        **servers,
        **paths["ours"].memory,
        **described(rounds),
    }


def described(rounds: dict[str, list[Figures]]) -> dict[str, Any]:
    """Return the medians over the rounds; a ratio is the median of the ratios within each round, and None if the run
    was too short to measure its divisor."""

    def median(name: str, of: Callable[[Figures], float]) -> float:
        return statistics.median(map(of, rounds[name]))

    def ratio(name: str, of: Callable[[Figures], float], digits: int = 2) -> float | None:
        pairs = zip(rounds["ours"], rounds[name], strict=True)
        ratios = [of(ours) / of(theirs) for ours, theirs in pairs if of(theirs)]
        return round(statistics.median(ratios), digits) if ratios else None

    result: dict[str, Any] = {
        "items_per_s": round(median("ours", lambda f: f.items_per_s)),
        "store_us_per_item": round(median("ours", lambda f: f.store_us), 1),
        "controller_us_per_item": round(median("ours", lambda f: f.middle_us), 1),
        "push_to_runtime_p50_ms": median("ours", lambda f: f.p50_ms),
        "push_to_runtime_p99_ms": median("ours", lambda f: f.p99_ms),
        "push_p99_ms": median("ours", lambda f: f.push_p99_ms),
        "fence_cost": ratio("unfenced", lambda f: f.server_us, 3),
    }
    for name in PEERS:
        if name in rounds:
            result |= {
                f"{name}_items_per_s": round(median(name, lambda f: f.items_per_s)),
                f"{name}_store_us_per_item": round(median(name, lambda f: f.store_us), 1),
                f"{name}_controller_us_per_item": round(median(name, lambda f: f.middle_us), 1),
                f"{name}_p50_ms": median(name, lambda f: f.p50_ms),
                f"ratio_vs_{name}": ratio(name, lambda f: f.items_per_s),
                f"p50_vs_{name}": ratio(name, lambda f: f.p50_ms),
            }
    return result


class End:
    """The items that a path's runtime has consumed, from the lines that it prints (ends.py)."""

    def __init__(self) -> None:
        self.consumed = 0
        self.late_ms: list[float] = []

    def hear(self, line: bytes) -> None:
        if line.startswith(b'{"consumed"'):
            said: dict[str, Any] = json.loads(line)
            self.consumed = said["consumed"]
            self.late_ms += said["late_ms"]

    async def until_consumed(self, count: int) -> None:
        await until(lambda: self.consumed >= count, f"item {count} to be consumed", WAIT_S, every_s=0.01)


async def saturate(path: Path, items: int) -> float:
    """Push `items` at full speed and return the seconds until all are consumed."""
    began, before = time.monotonic(), path.end.consumed
    await path.push(items, None)
    await path.end.until_consumed(before + items)
    return time.monotonic() - began


async def measure(path: Path, size: Size) -> Figures:
    """Measure one round, first at full speed, then at the rate of `size`."""
    store_s, middle_s = cpu_s(path.store_pid), cpu_s(path.middle)
    wall_s = await saturate(path, size.items)
    store_s, middle_s = cpu_s(path.store_pid) - store_s, cpu_s(path.middle) - middle_s
    path.end.late_ms.clear()
    count, before = int(size.rate * size.paced_s), path.end.consumed
    pushed = await path.push(count, size.rate)
    await path.end.until_consumed(before + count)
    return Figures(
        items_per_s=size.items / wall_s,
        store_us=store_s / size.items * 1e6,
        middle_us=middle_s / size.items * 1e6,
        p50_ms=percentile(path.end.late_ms, 0.5),
        p99_ms=percentile(path.end.late_ms, 0.99),
        push_p99_ms=percentile(pushed, 0.99),
    )


async def paced(count: int, rate: int | None, batch: int) -> AsyncIterator[int]:
    """Yield batch sizes that add up to `count`: at full speed, or every few milliseconds so that they keep `rate`."""
    began, sent = time.monotonic(), 0
    while sent < count:
        allowed = batch if rate is None else int((time.monotonic() - began) * rate) - sent
        due = min(allowed, count - sent)
        if due <= 0:
            await asyncio.sleep(0.001)
            continue
        yield due
        sent += due


class Path:
    """One path from the pusher to a runtime: a WebSocket, over which items go to the lives in turn.

    `server` is the name and version of the server that stores the items. `middle` is the pid of the process that serves
    the WebSocket: the controller, or a peer's front.
    """

    def __init__(
        self,
        lives: list[str],
        socket: aiohttp.ClientWebSocketResponse,
        *,
        end: End,
        server: str,
        store_pid: int,
        middle: int,
    ) -> None:
        self.lives = lives
        self.server = server
        self.end = end
        self.store_pid = store_pid
        self.middle = middle
        self.memory: dict[str, Any] = {}
        self._socket = socket
        self._sent = 0
        self._numbers = dict.fromkeys(lives, 0)
        self._room = asyncio.Semaphore(WINDOW)
        self._began_at: dict[tuple[str, int], float] = {}
        self._took_ms: list[float] = []
        # Read the socket all the time, because it answers heartbeats only while it is read.
        self._hearing = asyncio.create_task(self._hear())

    async def push(self, count: int, rate: int | None) -> list[float]:
        """Push `count` items, at full speed or at a rate, and return how long each took to be stored, in ms."""
        self._took_ms = []
        async for due in paced(count, rate, FRAME_ITEMS):
            pushes = []
            for _ in range(due):
                await self._room.acquire()
                live = self.lives[self._sent % len(self.lives)]
                self._sent += 1
                n = self._numbers[live] = self._numbers[live] + 1
                self._began_at[live, n] = time.monotonic()
                pushes.append({"live": live, "n": n, "text": (stamp() + TEXT).decode()})
            for frame in frames_of(map(msgspec.json.encode, pushes)):
                await self._socket.send_str(frame)
        while len(self._took_ms) < count:
            if self._hearing.done():
                self._hearing.result()
                raise DhschedError("the server closed the socket of the pusher; this is a bug, report it")
            await asyncio.sleep(0.002)
        return self._took_ms

    async def _hear(self) -> None:
        async for message in self._socket:
            now = time.monotonic()
            for answer in msgspec.json.decode(message.data):
                if "problem" in answer:
                    raise DhschedError(f"a push was refused: {answer['problem']}")
                self._took_ms.append((now - self._began_at.pop((answer["live"], answer["n"]))) * 1000)
                self._room.release()


# -- our own path


@asynccontextmanager
async def our_path(size: Size, *, fenced: bool = True) -> AsyncIterator[Path]:
    """Start store, Dispatch, controller and Worker, and yield the path once every live is claimed."""
    limits = Limits(claim_wait_ms=600_000)
    async with (
        Embedded(appendfsync="no") as server,
        await RedisStore.open(server.address, limits=limits) as store,
        Deployment(server.address.url()) as processes,
        aiohttp.ClientSession() as http,
    ):
        await processes.dispatch("dispatch")
        await processes.configure({"bench": ["bench"]}, starts_create_max=size.lives)
        if fenced:
            infer = await processes.infer("infer")
        else:
            infer = await processes.start("infer", module="dhsched.bench.input_unfenced", role="infer")
        end, runtime = End(), "dhsched.bench.ends:timed"
        worker = await processes.worker("bench", runtime=runtime, pool="bench", capacity=size.lives, hear=end.hear)
        url = await infer.until_ready()
        await processes.until_workers(1)
        await asyncio.sleep(0.5)  # Let both finish starting, so that `before` is their memory without lives.
        before = worker.memory_bytes, infer.memory_bytes
        lives = [f"l{i}" for i in range(size.lives)]
        await place_all(store, [f"default/{live}" for live in lives], "bench", CLAIM_S)
        async with http.ws_connect(f"{url}/v1/stream?producer=bench", max_msg_size=0) as socket:
            path = Path(lives, socket, end=end, server=str(store.link.server), store_pid=server.pid, middle=infer.pid)
            path.memory = {
                "worker_bytes_per_live": (worker.memory_bytes - before[0]) // size.lives,
                "infer_bytes_per_live": (infer.memory_bytes - before[1]) // size.lives,
            }
            yield path
