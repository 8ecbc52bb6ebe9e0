"""One large deployment of several cells: its memory, its CPU time, the times of creates, and a walk over its lives.

All lives are created as fast as the machine can, and stay idle on Workers of the `null` runtime. `memory_mb_<role>` is
the resident memory then, `idle_cores_<role>` the CPU time as cores, `settle_s` after the last claim;
`push_cores_<role>` the same while items are pushed at an even rate, in frames over all cells. `create_p50_ms` and
`create_p99_ms` are of creates at an even rate with BURST of them under way, into the full deployment.

The walk reads GET /v1/lives page by page, while other lives are created and ended, whose names lie between those of the
lives that stay. Each of those that stay must be listed exactly once: `listed_once`, `listed_twice` and `missed` count
them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import count, cycle, islice
from random import Random
from typing import Any

import aiohttp
import msgspec

from dhsched.bench.cells import BURST, FRAME, Size
from dhsched.bench.cells_fleet import ROLES, CellFleet, Post, Posts, Pusher, Shape, paced, running
from dhsched.bench.harness import percentile
from dhsched.errors import BadValue, DhschedError
from dhsched.tasks import cancel, first

POOL = "gpu"
CAPACITY_MAX = 100_000  # A Worker of more slots is refused by its settings.
LIVES_PER_WORKER = 500  # If the size names no number of Workers.
IN_FLIGHT_MAX = 960  # Unanswered items of the push stream; with more, the controller reads no further frame.
CREATED_MAX = 10_000  # Lives between two lines of progress.
COMING = 8  # Lives that are created, and ended, at once during the walk.
STAYING = 64  # Of these lives, so many are open at once.
PAUSE_S = 0.05  # Between two creations of COMING lives.
LAST = 8  # Frames whose items are waited for at the end: to read all of them would take longer than to push them.


class Row(msgspec.Struct, gc=False):
    """What the walk reads of a live."""

    live_id: str


class Page(msgspec.Struct):
    """One page of the walk."""

    lives: list[Row]
    next: str | None
    cells_left_out: list[str] = []


async def bench_large(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Build a deployment with the most cells of the size, measure it, and return the figures."""
    cells = max(size.cells)
    workers = max(size.workers or -(-size.lives // LIVES_PER_WORKER), cells)
    capacity = 5 * size.lives // (4 * workers) + size.creates + STAYING + COMING
    if capacity > CAPACITY_MAX:
        raise BadValue(
            f"{workers} Workers would need {capacity} slots each, and {CAPACITY_MAX} are the most; give more"
        )
    shape = Shape(cells=cells, pools=(POOL,), workers=workers, capacity=capacity)
    async with running(shape, say) as fleet:
        names = [f"l{n:07d}" for n in range(size.lives)]
        result: dict[str, Any] = {
            "bench": "cells",
            "cells": cells,
            "server": fleet.server,
            "workers": workers,
            "lives": size.lives,
            **await created(fleet, names, say),
        }
        await asyncio.sleep(size.settle_s)
        idle = await fleet.used_by(asyncio.sleep(size.seconds))
        result |= {f"memory_mb_{role}": mb for role, mb in fleet.memory_mb().items()}
        result |= {f"idle_cores_{role}": round(idle.cores[role], 4) for role in ROLES}
        say(f"idle: {result}")
        result |= await pushed(fleet, names, size)
        result |= await timed_creates(fleet, size)
        result |= await walked(fleet, names, size.page)
        say(f"walked: {result}")
    return result


async def created(fleet: CellFleet, names: Sequence[str], say: Callable[[str], None]) -> dict[str, float]:
    """Create the lives, and return how many per second that were."""
    began = time.monotonic()
    async with Posts.open(fleet.dispatch_url, BURST) as posts:
        for at in range(0, len(names), CREATED_MAX):
            some = names[at : at + CREATED_MAX]
            await posts.send(Post.create(live_id, POOL) for live_id in some)
            say(f"{at + len(some)} lives after {time.monotonic() - began:.0f} s")
    took_s = time.monotonic() - began
    await fleet.until_claimed(len(names))
    return {"created_per_s": round(len(names) / took_s)}


async def pushed(fleet: CellFleet, names: Sequence[str], size: Size) -> dict[str, float]:
    """Push items to lives of all cells at an even rate, and return what they cost."""
    items = max(FRAME, round(size.pushes_per_s * size.seconds))
    lives = cycle(names[:: max(1, len(names) // items)])
    frames = [[*islice(lives, FRAME)] for _ in range(items // FRAME)]
    async with Pusher.open(fleet.infer_url, IN_FLIGHT_MAX) as pusher:

        async def push() -> None:
            await paced(frames, size.pushes_per_s, pusher.push)
            await pusher.finish()

        used = await fleet.used_by(push())
    await fleet.until_acked([*{live_id for frame in frames[-LAST:] for live_id in frame}])
    return {
        "pushes_per_s": round(FRAME * len(frames) / used.wall_s),
        "push_p50_ms": percentile(pusher.took_ms, 0.5),
        "push_p99_ms": percentile(pusher.took_ms, 0.99),
        **{f"push_cores_{role}": round(used.cores[role], 4) for role in ROLES},
    }


async def timed_creates(fleet: CellFleet, size: Size) -> dict[str, float]:
    """Create more lives at an even rate, end them, and return how long the creates took."""
    names = [f"more-{n}" for n in range(size.creates)]
    bursts = [[Post.create(live_id, POOL) for live_id in names[at : at + BURST]] for at in range(0, len(names), BURST)]
    async with Posts.open(fleet.dispatch_url, BURST) as posts:
        await paced(bursts, size.creates_per_s, posts.send)
        took_ms = [*posts.took_ms]
        await fleet.until_claimed(len(names))
        await posts.send(map(Post.end, names))
    return {"create_p50_ms": percentile(took_ms, 0.5), "create_p99_ms": percentile(took_ms, 0.99)}


# -- the walk


async def walked(fleet: CellFleet, names: Sequence[str], size: int) -> dict[str, Any]:
    """List all lives while others come and go, and count how often each of `names` was listed."""
    seen: Counter[str] = Counter()
    took_ms: list[float] = []
    async with Coming(fleet, len(names)) as coming, aiohttp.ClientSession() as http:
        after: str | None = ""
        while after is not None:
            began = time.monotonic()
            query = {"limit": str(size), **({"after": after} if after else {})}
            async with http.get(f"{fleet.dispatch_url}/v1/lives", params=query) as answer:
                body = await answer.read()
            if answer.status != 200:
                raise DhschedError(f"GET /v1/lives was answered {answer.status}: {body[:300]!r}")
            took_ms.append((time.monotonic() - began) * 1000)
            page = msgspec.json.decode(body, type=Page)
            if page.cells_left_out:
                raise DhschedError(f"a page lacks the cells {', '.join(page.cells_left_out)}; this is a bug, report it")
            seen.update(row.live_id for row in page.lives)
            after = page.next
            coming.check()
        came, went = coming.came, coming.went
    times = [seen[live_id] for live_id in names]
    return {
        "listed_once": times.count(1),
        "listed_twice": sum(each > 1 for each in times),
        "missed": times.count(0),
        "pages": len(took_ms),
        "page_p50_ms": percentile(took_ms, 0.5),
        "page_p99_ms": percentile(took_ms, 0.99),
        "came": came,
        "went": went,
    }


class Coming:
    """Lives that are created and ended during the walk, under names between those of the lives that stay."""

    def __init__(self, fleet: CellFleet, lives: int) -> None:
        self.came = 0
        self.went = 0
        self._fleet = fleet
        self._lives = lives
        self._begun = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def __aenter__(self) -> Coming:
        """Begin with some lives that have come and gone already."""
        await first(self._begun, tasks=(self._task,))
        self.check()
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel(self._task)

    def check(self) -> None:
        """Raise the error that has ended the coming and going, if there is one."""
        if self._task.done():
            self._task.result()

    async def _run(self) -> None:
        rng, opened = Random(1), deque[str]()
        async with Posts.open(self._fleet.dispatch_url, COMING) as posts:
            for number in count():
                names = [f"l{rng.randrange(self._lives):07d}x{number}-{n}" for n in range(COMING)]
                await posts.send(Post.create(live_id, POOL) for live_id in names)
                opened.extend(names)
                self.came += len(names)
                if len(opened) > STAYING:
                    await posts.send([Post.end(opened.popleft()) for _ in range(COMING)])
                    self.went += COMING
                    self._begun.set()
                await asyncio.sleep(PAUSE_S)
