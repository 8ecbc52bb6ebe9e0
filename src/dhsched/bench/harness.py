"""Shared parts of the benchmarks: CPU time, medians, percentiles, metrics, filling a store, the printed result.

On a shared machine wall time also measures other programs. CPU time of this process, user and system, hardly does, and
comparing two things in alternating rounds of one run cancels most of the rest.
"""

import json
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from dhsched.client.metrics import total
from dhsched.errors import DhschedError
from dhsched.local.waiting import until
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
from dhsched.store.steps.redis import RedisStore

CREATE = Create(digital_id="bench", fingerprint="f")


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time per operation of this process in one round, and operations per second."""

    cpu_us_per_op: float
    ops_per_s: float


async def measure(work: Callable[[], Awaitable[None]], ops: int) -> Cost:
    """Run `work`, which does `ops` operations, once, and return its cost per operation."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    await work()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return Cost(cpu_us_per_op=cpu_s / ops * 1e6, ops_per_s=ops / wall_s)


def median_cost(rounds: list[Cost]) -> Cost:
    return Cost(
        cpu_us_per_op=statistics.median(cost.cpu_us_per_op for cost in rounds),
        ops_per_s=statistics.median(cost.ops_per_s for cost in rounds),
    )


def percentile(values: Sequence[float], share: float) -> float:
    return round(sorted(values)[int(share * (len(values) - 1))], 3) if values else 0.0


async def metrics_page(url: str) -> str:
    """Return the page of metrics that a role serves at `url`."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as response:
        return await response.text()


async def figure(url: str, series: str, **labels: str) -> float:
    """Return the sum of one series of the metrics at `url`, over all rows with these labels."""
    return total(await metrics_page(url), series, **labels)


async def server_name(address: Address) -> str:
    """Return the name and the version of the store at `address`."""
    async with await Link.open(address, {}) as link:
        return str(link.server)


async def register(store: RedisStore, name: str, pool: str, capacity: int) -> str:
    """Register a Worker, send its first report so that placement uses it, and return its id."""
    made = await store.register_worker(name=name, boot=f"boot-{name}", pool=pool, capacity=capacity)
    await store.report(worker=made.worker, boot=f"boot-{name}", link="d1")
    return made.worker


async def place(store: RedisStore, live: str, *, create: Create = CREATE, **where: Any) -> o.Committed:
    """Create a live, named `tenant/id`, and return its placement."""
    operation = f"op-{live.partition('/')[2]}"
    placed = await store.place(live=live, operation=operation, cause="create", create=create, **where)
    if not isinstance(placed, o.Committed) or placed.again:
        raise DhschedError(f"live {live} was not placed: {placed}; this is a bug of the benchmark, report it")
    return placed


async def place_all(store: RedisStore, lives: Sequence[str], pool: str, claim_s: float) -> None:
    """Create every live, and wait until each is claimed."""
    for live in lives:
        await place(store, live, pools=[pool])
    await until_claimed(store, len(lives), claim_s)


async def until_claimed(store: RedisStore, lives: int, claim_s: float) -> None:
    """Wait until none of the store's lives, of which there are `lives`, is starting."""

    async def all_claimed() -> bool:
        return not any(row.starting for row in (await store.records.fleet.snapshot()).workers)

    await until(all_claimed, f"{lives} lives to be claimed", claim_s, every_s=0.2)


def print_result(result: Mapping[str, Any]) -> None:
    """Print the result as one JSON object, on the last line, for scripts."""
    print(json.dumps(result), flush=True)
