"""Server CPU time of the steps, and the store's memory per live.

Server time is the CPU time of the server's main thread, with parsing and replies, at 50 calls in flight. It is noisy
on shared cores, so compared steps run in alternating rounds of one run, and the result is the median. Memory is the
growth of `used_memory` divided by the number of lives that were added.

An idle live stores its record (DigitalID, room, fingerprint, generation, cursors, times), a slot on its Worker, its
entry in the index, 64 bytes of metadata, and one past generation in its history. It has acked ten items, is claimed,
has no pending input and is on no agenda.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import truediv
from typing import Any, TypeVar

from dhsched.bench.harness import place, register
from dhsched.ownership import items
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps.place import Create
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import Ack, Append, RedisStore, Release

ITEM = b"x" * 60
PIPELINE = 50  # Calls in flight.
STATES_KIB = (0, 1, 4, 64)  # Sizes of the state that an ack saves; 64 is the most.
SHARED = 16  # Lives that share a call, as the lives of one tick do in the Infer-Controller.
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    lives: int = 50_000
    workers: int = 256
    rounds: int = 7
    per_round: int = 416


@dataclass(frozen=True, slots=True)
class Placed:
    """A live of the benchmark and its generation."""

    live: str
    worker: str
    epoch: int


async def bench_store(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Fill an embedded store, measure it and return the figures."""
    limits = Limits(starts_create_max=size.lives, pending_max=1000)
    async with Embedded(appendfsync="no") as server, await RedisStore.open(server.address, limits=limits) as store:
        bench = Bench(store, size)
        say(f"registering {size.workers} Workers")
        await bench.register()
        say(f"placing {size.lives} lives, then moving each once")
        result: dict[str, Any] = {
            "lives": size.lives,
            "workers": size.workers,
            "server": str(store.link.server),
            "place_round_trips": await bench.round_trips(),
            **await bench.fill(),
        }
        say("measuring input steps")
        result |= {**await bench.input_steps(), **await bench.whole_items()}
        say("measuring acks that save a state")
        result |= await bench.saved_states()
        say("measuring memory and expiry")
        return result | await bench.pending_memory() | {"expire_400_ms": round(await bench.expire(400), 3)}


class Bench:
    def __init__(self, store: RedisStore, size: Size) -> None:
        self.store = store
        store.new_mark = lambda: items.UNMARKED  # Then an ack needs no mark of a released item.
        self.size = size
        self.workers: list[str] = []
        self.lives: list[Placed] = []
        self.fresh: Iterable[Placed] = ()
        self.idle_bytes = 0.0

    async def register(self) -> None:
        capacity = self.size.lives * 2 // self.size.workers + 8
        for i in range(self.size.workers):
            self.workers.append(await register(self.store, f"w{i}", "gpu", capacity))

    async def round_trips(self) -> int:
        """Return the round trips of a create whose first candidate has no free slot, so that the Pool is searched."""
        small = await register(self.store, "small", "gpu", 1)
        await self.create("t/filler", small)
        before = self.store.link.calls
        await self.create("t/probe", small)
        return self.store.link.calls - before

    async def create(self, live: str, worker: str) -> Placed:
        create = Create(digital_id="anna-v2", fingerprint="0123456789abcdef", room=live[2:], metadata=b"m" * 64)
        placed = await place(self.store, live, create=create, candidates=[worker], pools=["gpu"])
        return Placed(live, placed.generation.worker, placed.generation.epoch)

    async def fill(self) -> dict[str, float]:
        """Create, claim, feed and move every live, so that each is idle with a history, and return the figures."""
        empty = await self.used_memory()
        n, workers = self.size.lives, self.workers
        creates = [partial(self.create, f"t/live-{i:06d}", workers[i % len(workers)]) for i in range(n)]
        self.lives, create_us = await self.timed(creates)
        for step in (self.claim, self.feed, self.consume):
            await pipelined([partial(step, p) for p in self.lives])
        moves = [partial(self.move, p, workers[(i + 1) % len(workers)]) for i, p in enumerate(self.lives)]
        moved, move_us = await self.timed(moves)
        await pipelined([partial(self.depart, old) for old in self.lives])
        self.lives = moved
        await pipelined([partial(self.claim, p) for p in self.lives])
        await self.empty_agenda()
        self.fresh = iter(self.lives)
        self.idle_bytes = (await self.used_memory() - empty) / n
        return {
            "place_server_us": round(create_us, 1),
            "move_server_us": round(move_us, 1),
            "idle_live_bytes": round(self.idle_bytes),
        }

    async def claim(self, p: Placed) -> None:
        await self.store.pull(live=p.live, worker=p.worker, epoch=p.epoch, after=0, controller="c1")

    async def feed(self, p: Placed) -> None:
        for n in range(1, 11):
            await self.append(p, n)

    async def append(self, p: Placed, n: int) -> None:
        await self.store.append_input(live=p.live, kind="text", payload=ITEM, producer="app", n=n)

    async def consume(self, p: Placed) -> None:
        await self.release(p, pull_no=1)
        await self.store.ack_input(live=p.live, worker=p.worker, epoch=p.epoch, n=10)

    async def release(self, p: Placed, *, pull_no: int, after: int = 0) -> Any:
        return await self.store.release_input(
            live=p.live, worker=p.worker, epoch=p.epoch, pull_no=pull_no, after=after, credit=10
        )

    # Shared calls, as in the Infer-Controller: the lives of one tick share a call.

    async def append_shared(self, lives: Sequence[Placed], n: int) -> None:
        item = items.unmarked("text", ITEM, False)
        await self.store.append_soon([Append(p.live, item, "app", n) for p in lives], controller="")

    async def release_shared(self, lives: Sequence[Placed], after: int = 10) -> None:
        rows = [Release(p.live, items.Through(p.worker, p.epoch, 1, after, items.UNMARKED).text()) for p in lives]
        await self.store.release_soon(rows, credit=10)

    async def ack_shared(self, lives: Sequence[Placed], n: int) -> None:
        await self.store.ack_soon([Ack(p.live, p.worker, p.epoch, n, None, items.UNMARKED) for p in lives])

    async def move(self, p: Placed, worker: str) -> Placed:
        placed: Any = await self.store.place(
            live=p.live, operation=f"mv-{p.live[2:]}", cause="reassign", expected=p.epoch, candidates=[worker]
        )
        return Placed(p.live, placed.generation.worker, placed.generation.epoch)

    async def depart(self, p: Placed) -> None:
        await self.store.depart(worker=p.worker, live=p.live, number=p.epoch)

    async def empty_agenda(self) -> None:
        """Take all lives off the agenda, as the step `look` would after their deadlines: these lives are idle."""
        for priority in range(4):
            await self.store.link.call("DEL", self.store.keys.of("agenda", priority))

    async def input_steps(self) -> dict[str, float]:
        """Measure append compared with a bare XADD, a fenced release of ten with a bare XRANGE of ten, and acks."""
        costs: dict[str, list[float]] = {}
        k = self.size.per_round
        for _ in range(self.size.rounds):
            lives = list(islice(self.fresh, k))
            streams = [f"bench:stream:{p.live}" for p in lives]
            alone, together, numbers = lives[k // 2 :], shares(lives[: k // 2]), range(11, 21)
            bare = self.store.link.call
            for name, work in (
                ("append", [partial(self.append, p, n) for n in numbers for p in alone]),
                ("append_shared", [partial(self.append_shared, part, n) for n in numbers for part in together]),
                ("xadd", [partial(bare, "XADD", s, "*", "d", ITEM) for _ in numbers for s in streams]),
                ("release10", [partial(self.release, p, pull_no=1, after=10) for p in alone]),
                ("xrange10", [partial(bare, "XRANGE", s, "-", "+", "COUNT", 10) for s in streams]),
                ("release10_shared", [partial(self.release_shared, part) for part in together]),
                ("ack", [partial(self.ack, p, 20) for p in lives]),
            ):
                lives_per_call = SHARED if name.endswith("_shared") else 1
                costs.setdefault(name, []).append((await self.timed(work))[1] / lives_per_call)
            await self.store.link.call("DEL", *streams)
        cost = {name: statistics.median(rounds) for name, rounds in costs.items()}
        return {
            "append_server_us": round(cost["append"], 1),
            "append_over_xadd": round(cost["append"] / cost["xadd"], 2),
            "append_shared_over_xadd": round(cost["append_shared"] / cost["xadd"], 2),
            "release10_server_us": round(cost["release10"], 1),
            "release10_over_xrange10": round(cost["release10"] / cost["xrange10"], 2),
            "release10_shared_over_xrange10": round(cost["release10_shared"] / cost["xrange10"], 2),
            "ack_server_us": round(cost["ack"], 1),
        }

    async def whole_items(self) -> dict[str, float]:
        """Measure an item from append to ack in calls that SHARED lives share, compared with a bare XADD, XRANGE and
        XDEL. SHARED items at a time are on their way on both sides: in one call, or in as many commands."""
        lives = list(islice(self.fresh, self.size.per_round))
        streams, bare = [f"bench:stream:{p.live}" for p in lives], self.store.link.call
        ours, theirs = [], []
        for n in range(10, 11 + self.size.rounds):  # The first round has the first ack of each live; it does not count.
            begun = await self.cpu_s()
            for part in shares(lives):
                await self.append_shared(part, n + 1)
                await self.release_shared(part, n)
                await self.ack_shared(part, n + 1)
            between = await self.cpu_s()
            for i in range(0, len(streams), SHARED):
                some = streams[i : i + SHARED]
                ids = await asyncio.gather(*(bare("XADD", s, "*", "d", ITEM) for s in some))
                await asyncio.gather(*(bare("XRANGE", s, "-", "+", "COUNT", 10) for s in some))
                await asyncio.gather(*(bare("XDEL", s, entry) for s, entry in zip(some, ids, strict=True)))
            if n > 10:
                ours.append((between - begun) / len(lives) * 1e6)
                theirs.append((await self.cpu_s() - between) / len(lives) * 1e6)
        await bare("DEL", *streams)
        return {
            "item_shared_server_us": round(statistics.median(ours), 1),
            "bare_item_server_us": round(statistics.median(theirs), 1),
            "item_shared_over_bare": round(statistics.median(map(truediv, ours, theirs)), 2),
        }

    async def ack(self, p: Placed, n: int, state: bytes | None = None) -> None:
        await self.store.ack_input(live=p.live, worker=p.worker, epoch=p.epoch, n=n, saved=state)

    async def saved_states(self) -> dict[str, float]:
        """Measure an ack without a state, and with states of 1, 4 and 64 KiB, and how much memory each state takes.

        Sizes take turns in each round. In the first round, in which a live's state is new, memory is measured; the
        later rounds replace the state, as a runtime does with each item, and their time is measured.
        """
        lives = list(islice(self.fresh, self.size.per_round))
        groups = {kib: lives[i :: len(STATES_KIB)] for i, kib in enumerate(STATES_KIB)}
        costs: dict[int, list[float]] = {kib: [] for kib in STATES_KIB}
        grown: dict[int, float] = {}
        for n in range(11, 12 + self.size.rounds):
            await pipelined([partial(self.append, p, n) for p in lives])
            await pipelined([partial(self.release, p, pull_no=1, after=n - 1) for p in lives])
            for kib, group in groups.items():
                before = await self.used_memory()
                state = n.to_bytes(4) * (kib * 256) if kib else None
                _, us = await self.timed([partial(self.ack, p, n, state) for p in group])
                if n == 11:
                    grown[kib] = (await self.used_memory() - before) / len(group)
                else:
                    costs[kib].append(us)
        return {
            **{f"ack_{kib}_kib_server_us": round(statistics.median(costs[kib]), 1) for kib in STATES_KIB},
            **{f"state_{kib}_kib_live_bytes": round(grown[kib] - grown[0]) for kib in STATES_KIB[1:]},
        }

    async def pending_memory(self) -> dict[str, float]:
        lives = list(islice(self.fresh, self.size.lives // 10))
        before = await self.used_memory()
        await pipelined([partial(self.append, p, n) for n in range(11, 21) for p in lives])
        grown = (await self.used_memory() - before) / len(lives)
        return {"pending10_live_bytes": round(self.idle_bytes + grown)}

    async def expire(self, lives: int) -> float:
        """Return the milliseconds that it takes to declare a Worker with this many lives lost."""
        took = []
        for i in range(5):
            crowded = await register(self.store, f"crowded-{i}", "crowded", lives)
            await pipelined([partial(self.create, f"t/crowd-{i}-{j}", crowded) for j in range(lives)])
            took.append((await self.timed([partial(self.store.expire_worker, worker=crowded, beat=1)]))[1] / 1000)
        return statistics.median(took)

    async def timed(self, work: Sequence[Callable[[], Awaitable[T]]]) -> tuple[list[T], float]:
        """Run the calls and return their results, and the server's CPU time per call in us."""
        before = await self.cpu_s()
        done = await pipelined(work)
        return done, (await self.cpu_s() - before) / len(work) * 1e6

    async def cpu_s(self) -> float:
        info = await self.store.records.server.info("cpu")
        return float(info["used_cpu_user_main_thread"]) + float(info["used_cpu_sys_main_thread"])

    async def used_memory(self) -> int:
        return int((await self.store.records.server.info("memory"))["used_memory"])


def shares(lives: Sequence[Placed]) -> list[Sequence[Placed]]:
    return [lives[i : i + SHARED] for i in range(0, len(lives), SHARED)]


async def pipelined(work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Make all calls, PIPELINE at a time, and return their results."""
    done: list[T] = []
    for i in range(0, len(work), PIPELINE):
        done += await asyncio.gather(*(one() for one in work[i : i + PIPELINE]))
    return done
