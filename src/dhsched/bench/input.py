"""The input path, whole: push over a WebSocket, through the fence, to a runtime, and its ack. Against fair peers.

Every part is a process of its own: store, Dispatch, Infer-Controller, a Worker with all lives, and here the pusher.
Saturated: as many items as go through, and what each costs the store and the controller. At a rate that all of them
manage: how late an item is. The peers (input_peers.py) take the same items over the same kind of WebSocket and move
them without any ownership: redis-py with streams, NATS JetStream; their Worker reads the server itself. `fence_cost` is
our own path against the same with the guard of release and ack cut out of their scripts (input_unfenced.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from dhsched.bench.input_end import stamp
from dhsched.bench.processes import Child, cpu_s, memory_bytes, percentile, start
from dhsched.errors import DhschedError
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.ownership.placing import Create
from dhsched.store.embedded import Embedded
from dhsched.store.redis import RedisStore

TEXT = b" A sentence of the usual length."
FRAME_ITEMS = 50
WINDOW = 2_000  # Items pushed and not yet answered.
WAIT_S = 120.0
CLAIM_S = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure with."""

    lives: int = 2_000
    items: int = 40_000
    rate: int = 2_000
    paced_s: float = 5.0
    peers: bool = True
    fence: bool = True


@dataclass(frozen=True, slots=True)
class Figures:
    """What one path did."""

    items_per_s: float
    store_us: float
    middle_us: float
    p50_ms: float
    p99_ms: float
    push_p99_ms: float


async def bench_input(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Our own path, then the others, in one run."""
    say(f"{size.lives} lives through the fence")
    async with our_path(size) as path:
        memory = await path.memory()
        ours = await measure(path, size)
    result: dict[str, Any] = {"lives": size.lives, **memory, **described(ours)}
    if size.fence:
        say("the same without the fence")
        async with our_path(size, fenced=False) as path:
            bare = await measure(path, Size(lives=size.lives, items=size.items, paced_s=0))
        result["fence_cost"] = round((ours.store_us + ours.middle_us) / (bare.store_us + bare.middle_us), 3)
    if size.peers:
        from dhsched.bench.input_peers import nats_path, redispy_path

        for name, peer in (("redispy", redispy_path), ("nats", nats_path)):
            say(f"the same items through {name}")
            async with peer(size) as path:
                theirs = await measure(path, size)
            result[f"{name}_items_per_s"] = round(theirs.items_per_s)
            result[f"{name}_store_us_per_item"] = round(theirs.store_us, 1)
            result[f"{name}_controller_us_per_item"] = round(theirs.middle_us, 1)
            result[f"{name}_p50_ms"] = theirs.p50_ms
            result[f"ratio_vs_{name}"] = round(ours.items_per_s / theirs.items_per_s, 2)
            result[f"p50_vs_{name}"] = round(ours.p50_ms / theirs.p50_ms, 2) if theirs.p50_ms else None
    return result


def described(figures: Figures) -> dict[str, Any]:
    return {
        "items_per_s": round(figures.items_per_s),
        "store_us_per_item": round(figures.store_us, 1),
        "controller_us_per_item": round(figures.middle_us, 1),
        "push_to_runtime_p50_ms": figures.p50_ms,
        "push_to_runtime_p99_ms": figures.p99_ms,
        "push_p99_ms": figures.push_p99_ms,
    }


class Path:
    """One way from a pusher to a runtime. `middle` are the processes between them, beside the store."""

    end: Child
    store_pid: int
    middle: tuple[int, ...]

    async def push(self, count: int, rate: int | None) -> list[float]:
        """Push so many items, as fast as they go or at a rate; how long each took to be accepted, in ms."""
        raise NotImplementedError

    async def memory(self) -> dict[str, Any]:
        return {}


async def measure(path: Path, size: Size) -> Figures:
    """Warm up, saturate, then pace."""
    await path.push(size.items // 10, None)
    await path.end.until_consumed(size.items // 10, WAIT_S)
    before = path.end.consumed
    store_s, middle_s, began = cpu_s(path.store_pid), sum(map(cpu_s, path.middle)), time.monotonic()
    await path.push(size.items, None)
    await path.end.until_consumed(before + size.items, WAIT_S)
    wall_s = time.monotonic() - began
    store_s, middle_s = cpu_s(path.store_pid) - store_s, sum(map(cpu_s, path.middle)) - middle_s
    path.end.late_ms.clear()
    count = int(size.rate * size.paced_s)
    pushed = await path.push(count, size.rate) if count else []
    await path.end.until_consumed(before + size.items + count, WAIT_S)
    return Figures(
        items_per_s=size.items / wall_s,
        store_us=store_s / size.items * 1e6,
        middle_us=middle_s / size.items * 1e6,
        p50_ms=percentile(path.end.late_ms, 0.5),
        p99_ms=percentile(path.end.late_ms, 0.99),
        push_p99_ms=percentile(pushed, 0.99),
    )


async def paced(count: int, rate: int | None, batch: int) -> AsyncIterator[int]:
    """Batches that add up to `count`: at once, or every few milliseconds so that they come at `rate`."""
    began, sent = time.monotonic(), 0
    while sent < count:
        if rate is None:
            due = min(batch, count - sent)
        else:
            due = min(int((time.monotonic() - began) * rate) - sent, count - sent)
        if due <= 0:
            await asyncio.sleep(0.001)
            continue
        yield due
        sent += due


class SocketPath(Path):
    """Pushes over a WebSocket, round robin over the lives."""

    def __init__(self, lives: list[str], socket: aiohttp.ClientWebSocketResponse) -> None:
        self.lives = lives
        self._socket = socket
        self._sent = 0
        self._numbers = dict.fromkeys(lives, 0)
        self._memory: dict[str, Any] = {}

    async def memory(self) -> dict[str, Any]:
        return self._memory

    async def push(self, count: int, rate: int | None) -> list[float]:
        room = asyncio.Semaphore(WINDOW)
        began_at: dict[tuple[str, int], float] = {}
        took_ms: list[float] = []

        async def hear() -> None:
            while len(took_ms) < count:
                message = await self._socket.receive(timeout=WAIT_S)
                for answer in msgspec.json.decode(message.data):
                    if "problem" in answer:
                        raise DhschedError(f"a push was refused: {answer['problem']}")
                    took_ms.append((time.monotonic() - began_at.pop((answer["live"], answer["n"]))) * 1000)
                    room.release()

        hearing = asyncio.create_task(hear())
        async for due in paced(count, rate, FRAME_ITEMS):
            pushes = []
            for _ in range(due):
                await room.acquire()
                live = self.lives[self._sent % len(self.lives)]
                self._sent += 1
                n = self._numbers[live] = self._numbers[live] + 1
                began_at[live, n] = time.monotonic()
                pushes.append({"live": live, "n": n, "text": (stamp() + TEXT).decode()})
            await self._socket.send_str(msgspec.json.encode(pushes).decode())
        await hearing
        return took_ms


# -- our own path


@asynccontextmanager
async def our_path(size: Size, *, fenced: bool = True) -> AsyncIterator[SocketPath]:
    """Store, Dispatch, controller and Worker as processes, with every live claimed."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(Embedded(appendfsync="no"))
        locks = stack.enter_context(tempfile.TemporaryDirectory(prefix="dhsched-bench-"))
        store_url = server.address.url()
        quiet = ("--log-level", "error")
        verb = ("-m", "dhsched.cli.child", "run")
        dispatch = await start("dispatch", *verb, "dispatch", "--store", store_url, "--port", "0", *quiet)
        stack.push_async_callback(dispatch.stop)
        role = (*verb, "infer") if fenced else ("-m", "dhsched.bench.input_unfenced")
        infer = await start("infer", *role, "--store", store_url, "--port", "0", *quiet)
        stack.push_async_callback(infer.stop)
        runtime = ("--runtime", "dhsched.bench.input_end:timed", "--pool", "bench", "--capacity", str(size.lives))
        where = ("--dispatch", await dispatch.until_ready(), "--locks", locks, "--name", "bench")
        worker = await start("worker", *verb, "worker", *runtime, *where, *quiet)
        stack.push_async_callback(worker.stop)
        await infer.until_ready()
        limits = Limits(starts_create_max=size.lives, claim_wait_ms=600_000)
        store = await stack.enter_async_context(await RedisStore.open(server.address, limits=limits))
        lives = [f"l{i}" for i in range(size.lives)]
        before = await worker_there(store, worker, infer)
        await place_all(store, lives)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        url = f"{infer.url}/v1/stream?producer=bench"
        socket = await stack.enter_async_context(http.ws_connect(url, max_msg_size=0))
        path = SocketPath(lives, socket)
        path.end, path.store_pid, path.middle = worker, server.pid, (infer.pid,)
        after = memory_bytes(worker.pid), memory_bytes(infer.pid)
        path._memory = {
            "worker_bytes_per_live": (after[0] - before[0]) // size.lives,
            "infer_bytes_per_live": (after[1] - before[1]) // size.lives,
        }
        yield path


async def worker_there(store: RedisStore, worker: Child, infer: Child) -> tuple[int, int]:
    """Wait for the Worker to be placeable; what both processes weigh before the first live."""
    for _ in range(int(CLAIM_S / 0.05)):
        if await store.link.call("ZCARD", store.keys.of("room", "bench")):
            await asyncio.sleep(0.5)
            return memory_bytes(worker.pid), memory_bytes(infer.pid)
        await asyncio.sleep(0.05)
    raise DhschedError(f"the Worker did not register within {CLAIM_S:g} s")


async def place_all(store: RedisStore, lives: list[str]) -> None:
    """Create every live and wait until each is claimed."""
    for live in lives:
        create = Create(digital_id="bench", fingerprint="f")
        placed = await store.place(
            live=f"default/{live}", operation=f"op-{live}", because="create", create=create, pools=["bench"]
        )
        if not isinstance(placed, o.Committed):
            raise DhschedError(f"{live} was not placed: {placed}")
    [worker] = await store.link.call("ZRANGE", store.keys.of("workers"), 0, -1)
    for _ in range(int(CLAIM_S / 0.1)):
        starting = await store.link.call("HGET", store.keys.of("worker", worker.decode()), "starting")
        if int(starting) == 0:
            return
        await asyncio.sleep(0.1)
    raise DhschedError(f"{int(starting)} of {len(lives)} lives were not claimed within {CLAIM_S:g} s")
