"""Kill and drain of a Worker with 4,000 lives and flowing input: times, and lost or repeated items.

Every part is a process of its own. Kill: the time until the Worker is declared lost (`detect_ms`), the time until each
of its lives is claimed elsewhere (`reclaimed_*`), the share of them that is (`recovered_fraction`), and the items that
were lost or consumed twice (`lost_items`, `consumed_twice`).

Drain: the same counts, which a planned move keeps at 0 (`dropped`, `drain_consumed_twice`), and the blackout of a live:
the time from the last item that the source consumed to the first item on the target. To measure it, some lives get an
item every `dense_ms`; a blackout includes up to that much.

Claims are timed by the store, everything else by the monotonic clock that all processes of one machine share; the
offset between the two clocks is measured once, right before the kill.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp
import msgspec

from dhsched.bench.agent import bench_agent
from dhsched.bench.ends import RECORDS
from dhsched.bench.harness import figure, percentile, place_all
from dhsched.client.stream import frames_of
from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment
from dhsched.local.waiting import until
from dhsched.store.records.workers import is_yes
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore
from dhsched.tasks import cancel
from dhsched.types import split_tag

POOL, DIGITAL_ID = "bench", "bench"
RUNTIME = "dhsched.bench.ends:measured"
CLAIM_S = 120.0  # Lives that are not claimed by then at the start end the benchmark with an error.
RECOVER_S = 120.0  # Lives of the dead Worker that are not claimed elsewhere by then count as not recovered.
DRAIN_S = 600.0  # Lives that are still on the drained Worker by then count as not drained.
FLOW_S = 60.0  # Items that are not acked this long after the last push end the benchmark with an error.
PUSH_S = 0.02  # Time between two frames of a pusher.
AGAIN_S = 3.0  # An item that was not answered for this long is sent again.
POLL_S = 0.02  # Time between two reads of the store.
STEADY_S = 3.0  # Time that input flows before the kill or the drain.


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. Without the killed and the drained Worker, the capacity is 5/4 of the lives."""

    workers: int = 8
    lives: int = 4_000
    dispatch: int = 2
    infer: int = 2
    rate: int = 500
    dense: int = 16
    dense_ms: int = 20

    @property
    def capacity(self) -> int:
        return -(-self.lives * 5 // (4 * (self.workers - 2)))


class Consumed(NamedTuple):
    """One item that a runtime consumed."""

    at: float
    live: str
    epoch: int
    seq: int


async def bench_recovery(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Kill one Worker, then drain another one, and return the figures of both, and of an agent's starts (agent.py)."""
    async with running(size, say) as cell:
        result: dict[str, Any] = {"workers": size.workers, "lives": size.lives, "items_per_s": size.rate}
        result["server"] = str(cell.store.link.server)
        async with cell.flowing(size.rate):
            await asyncio.sleep(STEADY_S)
            result |= await killed(cell, say)
        result |= await cell.books(prefix="")
        say(f"killed: {result}")
        async with cell.flowing(size.rate):
            await asyncio.sleep(STEADY_S)
            drained = await drain(cell, size, say)
        books = await cell.books(prefix="drain_")
        result |= drained | {"dropped": books["drain_lost_items"]} | books
    return result | await bench_agent()


# -- the kill and the drain


async def killed(cell: Cell, say: Callable[[str], None]) -> dict[str, Any]:
    victim = cell.processes.workers[worker_name(0)]
    worker, lives = await cell.lives_of(victim.name)
    offset_s = await cell.store_minus_monotonic_s()
    began = time.monotonic()
    victim.kill()
    detected = await cell.until_lost(worker)
    say(f"declared lost after {(detected - began) * 1000:.0f} ms, with {len(lives)} lives")
    claimed: dict[str, float] = {}
    while len(claimed) < len(lives) and time.monotonic() < began + RECOVER_S:
        await asyncio.sleep(POLL_S * 5)
        for live, at_ms in await cell.claimed_elsewhere([live for live in lives if live not in claimed], worker):
            claimed[live] = at_ms / 1000 - offset_s - began
    times = [seconds * 1000 for seconds in claimed.values()]
    return {
        "lives_of_the_dead_worker": len(lives),
        "recovered_fraction": round(len(claimed) / max(1, len(lives)), 4),
        "detect_ms": round((detected - began) * 1000),
        "reclaimed_p50_ms": round(percentile(times, 0.5)),
        "reclaimed_p99_ms": round(percentile(times, 0.99)),
        "reclaimed_max_ms": round(max(times, default=0)),
    }


async def drain(cell: Cell, size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    worker, lives = await cell.lives_of(worker_name(1))
    dense = lives[: size.dense]
    async with cell.flowing(len(dense) * 1000 // size.dense_ms, dense):
        await asyncio.sleep(STEADY_S)
        began = time.monotonic()
        await cell.drain(worker)
        left = await cell.until_empty(worker, DRAIN_S)
        took_s = time.monotonic() - began
        say(f"drained of {len(lives)} lives in {took_s:.1f} s, {left} left")
        await asyncio.sleep(1.0)
    silences = blackouts([one for one in cell.consumed() if one.at >= began - STEADY_S], {*dense})
    return {
        "drained_lives": len(lives) - left,
        "drain_s": round(took_s, 1),
        "drain_forced": await cell.forced(),
        "blackouts": len(silences),
        "blackout_p50_ms": percentile(silences, 0.5),
        "blackout_p99_ms": percentile(silences, 0.99),
        "blackout_grain_ms": size.dense_ms,
    }


def item(live: str, n: int) -> dict[str, Any]:
    return {"live": live, "n": n, "text": "Hi.", "boundary": True}


def blackouts(consumed: Sequence[Consumed], lives: set[str]) -> list[float]:
    """Return the blackouts, in ms, of those `lives` that changed generation once: from the last item of the old one to
    the first of the new one."""
    by_live: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in consumed:
        if one.live in lives:
            by_live[one.live][one.epoch].append(one.at)
    found = []
    for epochs in by_live.values():
        if len(epochs) == 2:
            before, after = (epochs[epoch] for epoch in sorted(epochs))
            found.append((min(after) - max(before)) * 1000)
    return found


# -- the deployment


class Cell:
    """The deployment that is measured, its input, and its records."""

    def __init__(
        self, processes: Deployment, store: RedisStore, http: aiohttp.ClientSession, lives: Sequence[str]
    ) -> None:
        self.processes = processes
        self.store = store
        self.lives = lives
        self._http = http
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._unanswered: dict[tuple[str, str, int], float] = {}
        self._seen: dict[tuple[str, int], int] = {}

    # -- input

    @asynccontextmanager
    async def flowing(self, rate: int, lives: Sequence[str] | None = None) -> AsyncIterator[None]:
        """Push input to these lives in turn, at a rate, until the end of the block."""
        # Each stream is its own producer: two streams of one producer would make gaps in each other's numbers.
        producer = "all" if lives is None else "dense"
        chosen = [live.partition("/")[2] for live in (self.lives if lives is None else lives)]
        url = f"{self.processes.controllers[-1].url}/v1/stream?producer={producer}"
        async with self._http.ws_connect(url, max_msg_size=0) as socket:
            pushing = asyncio.create_task(self._push(socket, producer, chosen, rate))
            hearing = asyncio.create_task(self._hear(socket, producer))
            try:
                yield
            finally:
                await cancel(pushing)
                await asyncio.sleep(0.5)  # Time for answers to items in flight.
                await cancel(hearing)

    async def _push(self, socket: aiohttp.ClientWebSocketResponse, producer: str, lives: list[str], rate: int) -> None:
        began, sent, again_at = time.monotonic(), 0, 0.0
        while True:
            now = time.monotonic()
            pushes = []
            if now >= again_at:
                # An item that a busy machine did not answer is sent again, in order; with the same number it is the
                # same item.
                again_at = now + AGAIN_S
                old = {key: at for key, at in self._unanswered.items() if key[0] == producer and at < now - AGAIN_S}
                pushes = [item(live, n) for _, live, n in sorted(old)]
            for _ in range(int((now - began) * rate) - sent):
                live = lives[sent % len(lives)]
                sent += 1
                n = self._numbers[producer, live] = self._numbers[producer, live] + 1
                self._unanswered[producer, live, n] = now
                pushes.append(item(live, n))
            for frame in frames_of(map(msgspec.json.encode, pushes)):
                await socket.send_str(frame)
            await asyncio.sleep(PUSH_S)

    async def _hear(self, socket: aiohttp.ClientWebSocketResponse, producer: str) -> None:
        async for message in socket:
            for answer in msgspec.json.decode(message.data):
                if "problem" not in answer:
                    self._unanswered.pop((producer, answer["live"], answer["n"]), None)

    # -- items that were consumed

    def consumed(self) -> list[Consumed]:
        lines = "".join(file.read_text() for file in self.processes.folder.glob("*.txt")).splitlines()
        rows = (line.split() for line in lines)
        return sorted(Consumed(float(at), live, int(epoch), int(seq)) for at, live, epoch, seq in rows)

    async def books(self, *, prefix: str) -> dict[str, Any]:
        """Wait until all items are acked, and count those since the last call: all, lost, and consumed twice."""
        cursors = await until(self._settled_cursors, "every item to be acked", FLOW_S, every_s=0.2)
        # The cursors are read before the records, because a late push adds to the cursors first.
        times = Counter((one.live, one.seq) for one in self.consumed())
        appended = {(live, seq) for live, last in cursors.items() for seq in range(1, last + 1)}
        lost = sum(1 for item in appended if item not in self._seen and not times[item])
        twice = sum(count - max(1, self._seen.get(item, 1)) for item, count in times.items() if count > 1)
        items = len(appended) - len(self._seen)
        self._seen = dict(times)
        return {f"{prefix}items": items, f"{prefix}lost_items": lost, f"{prefix}consumed_twice": twice}

    async def _settled_cursors(self) -> dict[str, int] | None:
        """Return the number of items appended to each live; None while some are not acked."""
        rows = await asyncio.gather(*(self.store.records.lives.get(live) for live in self.lives))
        found = {live: row for live, row in zip(self.lives, rows, strict=True) if row is not None}
        settled = all(row.appended == row.acked for row in found.values())
        return {live: row.appended for live, row in found.items()} if settled else None

    # -- Workers and their lives

    async def lives_of(self, name: str) -> tuple[str, list[str]]:
        """Return the id of the Worker with this name, and its lives."""
        workers = self.store.records.workers
        for worker in await workers.names():
            if worker.rpartition("#")[0] == name:
                return worker, [split_tag(tag)[0] for tag in await workers.slots(worker)]
        raise DhschedError(f"Worker {name} is not registered; this is a bug of the benchmark, report it")

    async def until_empty(self, worker: str, wait_s: float) -> int:
        """Wait until the Worker has no slots taken, at most `wait_s`, and return how many are still taken."""
        give_up = time.monotonic() + wait_s
        while True:
            left = len(await self.store.records.workers.slots(worker))
            if not left or time.monotonic() > give_up:
                return left
            await asyncio.sleep(POLL_S * 5)

    async def until_lost(self, worker: str) -> float:
        async def lost() -> bool:
            return is_yes(await self.store.records.workers.lost(worker))

        await until(lost, f"Worker {worker} to be declared lost", RECOVER_S, every_s=POLL_S)
        return time.monotonic()

    async def claimed_elsewhere(self, lives: Sequence[str], worker: str) -> list[tuple[str, int]]:
        """Return those lives that a Worker other than `worker` has claimed, with the time by the store's clock."""
        rows = [row for row in await self.store.records.lives.rows(lives) if row.claimed and row.worker != worker]
        times = await self.store.records.lives.times([row.live for row in rows])
        return [(row.live, at.claimed_at) for row, at in zip(rows, times, strict=True) if at is not None]

    async def store_minus_monotonic_s(self) -> float:
        """Return the offset of the store's clock to the monotonic clock, from the quickest of 20 answers."""
        tries = []
        for _ in range(20):
            before = time.monotonic()
            now_ms = await self.store.records.server.now_ms()
            after = time.monotonic()
            tries.append((after - before, now_ms / 1000 - (before + after) / 2))
        return min(tries)[1]

    async def drain(self, worker: str) -> None:
        async with self.processes.client() as client:
            await client.drain(worker)

    async def forced(self) -> int:
        """Return the number of cutovers without a boundary, from the replicas' metrics."""
        each = [await figure(one.url, "dhsched_drain_moves_total", how="forced") for one in self.processes.replicas]
        return int(sum(each))


@asynccontextmanager
async def running(size: Size, say: Callable[[str], None]) -> AsyncIterator[Cell]:
    """Start every process, and yield the deployment once every live is claimed."""
    async with (
        Embedded(appendfsync="no") as server,
        await RedisStore.open(server.address) as store,
        aiohttp.ClientSession() as http,
        Deployment(server.address.url()) as processes,
    ):
        for n in range(size.dispatch):
            await processes.dispatch(f"dispatch-{n}")
        for n in range(size.infer):
            await processes.infer(f"infer-{n}")
        await processes.configure({DIGITAL_ID: [POOL]}, starts_create_max=size.lives)
        how: dict[str, Any] = {"runtime": RUNTIME, "pool": POOL, "capacity": size.capacity}
        for n in range(size.workers):
            await processes.worker(worker_name(n), **how, environment={RECORDS: str(processes.folder)})
        await processes.until_workers(size.workers, CLAIM_S)
        say(f"placing {size.lives} lives on {size.workers} Workers")
        lives = [f"default/l{n}" for n in range(size.lives)]
        await place_all(store, lives, POOL, CLAIM_S)
        yield Cell(processes, store, http, lives)


def worker_name(number: int) -> str:
    return f"bench-{number}"
