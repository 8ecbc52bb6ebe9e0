"""What a create and an item cost the stores and the services with 1, 2 and 4 cells, at the same load.

All deployments run side by side, and are measured in turns, so that other load on the machine meets all of them. Each
has the same Workers, lives, creates and items per second; only the number of cells differs. The load comes in bursts,
BURST creates or FRAME items at a time, each after the one before was answered. A call to a store has the rows of one
cell only, and wider calls cost less per row; so each burst goes to one Pool, whose Workers are all in one cell, and the
Pools take turns. Then calls, and the messages to Workers, are as wide with one cell as with many. With `mixed` each
burst goes to all Pools at once instead: then many cells get smaller calls, as they do while a deployment has little
load.

`store_us_per_create_<n>`, `store_us_per_item_<n>`: CPU time of all servers of n cells together. `service_us_...`: of
the Dispatch replica per create, of the Infer-Controller per item; the other one is under `infer_us_per_create_<n>` and
`dispatch_us_per_item_<n>`. A create is measured to the claim, an item to the ack. What a cell costs by itself, its
reports, snapshots and loops, grows with the cells and not with the load: it is measured before each load
(`idle_service_us_per_s_<n>`, `idle_store_us_per_s_<n>`), and its median is taken off the other figures. They are
medians of the rounds; `..._spread_<n>` is the highest minus the lowest round, as a share of the median. A ratio is the
median of the ratios to the fewest cells within each round.

With `lives`, one large deployment is measured instead (cells_large.py).
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from math import lcm
from typing import Any, NamedTuple

from dhsched.bench.cells_fleet import CellFleet, Post, Posts, Pusher, Shape, Used, paced, running
from dhsched.cells.fixed import CELLS_MAX
from dhsched.errors import BadValue

BURST = 16  # Creates that are under way at once, and connections of the load.
FRAME = 64  # Items that are under way at once: as many as one frame may have.
LIVES_PER_WORKER = 100  # Lives that get the items. More than FRAME, so that a frame has one item for each of its lives.
WORKERS = 8  # Workers of each deployment, if the size names no number.


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured. A deployment is not measured for `rest_s` after the lives of its last round have ended.
    `lives`, `seconds`, `settle_s` and `page` are for the large deployment alone."""

    cells: tuple[int, ...] = (1, 2, 4)
    rounds: int = 5
    rest_s: float = 10.0
    idle_s: float = 5.0
    creates: int = 1_000
    creates_per_s: int = 250
    items: int = 12_000
    pushes_per_s: int = 3_000
    mixed: bool = False
    workers: int = 0
    lives: int = 0
    seconds: float = 30.0
    settle_s: float = 40.0
    page: int = 1_000


class Round(NamedTuple):
    """What one deployment has used in one round: idle, for its creates, and for its items."""

    idle: Used
    creates: Used
    items: Used


async def bench_cells(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure all numbers of cells in turns, or one large deployment, and return the figures."""
    if not size.cells:
        raise BadValue("no number of cells is given; give some, like 1,2,4")
    if size.lives:
        from dhsched.bench.cells_large import bench_large

        return await bench_large(size, say)
    pools = tuple(f"pool-{n}" for n in range(lcm(*size.cells)))
    if len(pools) > CELLS_MAX:
        raise BadValue(f"cells {size.cells} have no common multiple up to {CELLS_MAX}; choose others")
    workers = -(-(size.workers or WORKERS) // len(pools)) * len(pools)
    capacity = LIVES_PER_WORKER + 2 * size.creates
    shapes = [Shape(cells=cells, pools=pools, workers=workers, capacity=capacity) for cells in size.cells]
    server, rounds = await measured(shapes, size, say)
    return {
        "bench": "cells",
        "cells": [*size.cells],
        "server": server,
        "workers": workers,
        "lives": workers * LIVES_PER_WORKER,
        "creates_per_s": size.creates_per_s,
        "pushes_per_s": size.pushes_per_s,
        "burst": BURST,
        "frame": FRAME,
        "mixed": size.mixed,
        "rounds": size.rounds,
        **figures(rounds, size),
    }


async def measured(
    shapes: Sequence[Shape], size: Size, say: Callable[[str], None]
) -> tuple[str, dict[int, list[Round]]]:
    """Start all deployments and measure them in turns; return the server's name, and the rounds by number of cells."""
    rounds: dict[int, list[Round]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        loads: list[Load] = []
        for shape in shapes:
            loads.append(Load(await stack.enter_async_context(running(shape, say)), size))
            await loads[-1].begin()
            await loads[-1].round()  # It warms everything up, and does not count.
        for number in range(size.rounds):
            for load in loads:
                cells = load.fleet.shape.cells
                rounds[cells].append(await load.round())
                say(f"round {number + 1}, {cells} cell(s): {told(rounds[cells][-1], size)}")
        return loads[0].fleet.server, rounds


# -- figures

WHAT = (
    ("store_us_per_create", "creates", "store"),
    ("store_us_per_item", "items", "store"),
    ("service_us_per_create", "creates", "dispatch"),
    ("service_us_per_item", "items", "infer"),
    ("infer_us_per_create", "creates", "infer"),
    ("dispatch_us_per_item", "items", "dispatch"),
)


def figures(rounds: dict[int, list[Round]], size: Size) -> dict[str, Any]:
    """Return the figures of all rounds, by number of cells."""
    found: dict[str, Any] = {}
    per_round: dict[tuple[str, int], list[float]] = {}
    for cells, some in rounds.items():
        idle = {role: statistics.median(one.idle.cores[role] for one in some) for role in some[0].idle.cpu_s}
        found[f"idle_store_us_per_s_{cells}"] = round(idle["store"] * 1e6)
        found[f"idle_service_us_per_s_{cells}"] = round((idle["dispatch"] + idle["infer"]) * 1e6)
        for name, load, role in WHAT:
            count = size.creates if load == "creates" else size.items
            each = [micros(getattr(one, load), role, idle[role], count) for one in some]
            per_round[name, cells] = each
            middle = statistics.median(each)
            found[f"{name}_{cells}"] = round(middle, 2)
            found[f"{name}_spread_{cells}"] = round((max(each) - min(each)) / middle, 3) if middle > 0 else None
    first = min(rounds)
    for name, _, _ in WHAT:
        for cells in sorted(rounds)[1:]:
            pairs = zip(per_round[name, cells], per_round[name, first], strict=True)
            ratios = [one / base for one, base in pairs if base > 0]
            found[f"ratio_{name}_{cells}"] = round(statistics.median(ratios), 3) if ratios else None
    return found


def micros(used: Used, role: str, idle_cores: float, count: int) -> float:
    """Return the CPU time of a role for each of `count` operations, beyond what as long a time takes without them."""
    return (used.cpu_s[role] - idle_cores * used.wall_s) / count * 1e6


def told(one: Round, size: Size) -> str:
    """Return the figures of one round as they are told while the others run."""
    parts = []
    for name, load, role in WHAT[:4]:
        count = size.creates if load == "creates" else size.items
        parts.append(f"{name} {micros(getattr(one, load), role, one.idle.cores[role], count):.1f}")
    services = one.idle.cores["dispatch"] + one.idle.cores["infer"]
    return f"{', '.join(parts)}; idle services {services * 1e6:.0f} us/s"


# -- load


class Load:
    """The load on one deployment."""

    def __init__(self, fleet: CellFleet, size: Size) -> None:
        self.fleet = fleet
        self._size = size
        self._rounds = 0
        self._ended_at = float("-inf")
        self._lives: list[list[str]] = []  # Those that get the items, by Worker: one Pool after the other.

    async def begin(self) -> None:
        """Create the lives that get the items."""
        fleet = self.fleet
        per_pool = LIVES_PER_WORKER * fleet.shape.workers // len(fleet.shape.pools)
        names = [[*islice(ids, per_pool)] for ids in self._ids("l")]
        posts = [
            Post.create(live_id, pool) for pool, some in zip(fleet.shape.pools, names, strict=True) for live_id in some
        ]
        async with Posts.open(fleet.dispatch_url, BURST) as load:
            await load.send(posts)
        await fleet.until_claimed(len(posts))
        of_pools = [await self._by_worker(some) for some in names]
        self._lives = [lives for workers in zip(*of_pools, strict=True) for lives in workers]

    async def _by_worker(self, live_ids: Sequence[str]) -> list[list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for row in await self.fleet.rows(live_ids):
            found[row.worker].append(row.live.removeprefix("default/"))
        return [found[worker] for worker in sorted(found)]

    def _ids(self, prefix: str) -> list[Iterator[str]]:
        """Return ids for each Pool: those of its cell."""
        cells = self.fleet.shape.cells
        return [self.fleet.ids(f"{prefix}-p{n}-", n % cells) for n in range(len(self.fleet.shape.pools))]

    async def round(self) -> Round:
        """Measure a round: idle, items, creates. What was created ends with it."""
        self._rounds += 1
        await asyncio.sleep(max(0.0, self._ended_at + self._size.rest_s - time.monotonic()))
        idle = await self.fleet.used_by(asyncio.sleep(self._size.idle_s))
        items = await self._push()
        creates = await self._create()
        return Round(idle, creates, items)

    async def _push(self) -> Used:
        frames = [*islice(self._frames(), -(-self._size.items // FRAME))]
        frames[-1] = frames[-1][: self._size.items - FRAME * (len(frames) - 1)]
        async with Pusher.open(self.fleet.infer_url, FRAME) as pusher:

            async def push() -> None:
                await paced(frames, self._size.pushes_per_s, pusher.push)
                await pusher.finish()
                # Only the last frame's lives, because reading costs the stores, too.
                await self.fleet.until_acked(frames[-1])

            used = await self.fleet.used_by(push())
        await self.fleet.until_acked([live_id for some in self._lives for live_id in some])
        return used

    def _frames(self) -> Iterator[list[str]]:
        """Yield the lives of each frame: of one Worker, the next one each time, or of all Workers in turn."""
        if self._size.mixed:
            each = cycle([live_id for some in zip(*self._lives, strict=False) for live_id in some])
            while True:
                yield [*islice(each, FRAME)]
        turns = [cycle(some) for some in self._lives]
        for turn in cycle(turns):
            yield [*islice(turn, FRAME)]

    async def _create(self) -> Used:
        pools, size = self.fleet.shape.pools, self._size
        made = [*islice(self._new_lives(), size.creates)]
        bursts = [made[at : at + BURST] for at in range(0, len(made), BURST)]
        posts = [[Post.create(live_id, pools[pool]) for live_id, pool in some] for some in bursts]
        async with Posts.open(self.fleet.dispatch_url, BURST) as load:

            async def create() -> None:
                await paced(posts, size.creates_per_s, load.send)
                await self.fleet.until_claimed(len(made))

            used = await self.fleet.used_by(create())
            await load.send(Post.end(live_id) for live_id, _ in made)
        self._ended_at = time.monotonic()
        return used

    def _new_lives(self) -> Iterator[tuple[str, int]]:
        """Yield new ids with the numbers of their Pools: BURST for one Pool, then for the next; or one for each."""
        ids = self._ids(f"r{self._rounds}")
        together = 1 if self._size.mixed else BURST
        for pool, turn in cycle(enumerate(ids)):
            for live_id in islice(turn, together):
                yield live_id, pool
