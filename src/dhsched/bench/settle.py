"""What settled replies cost: appends with `replicas=1` compared with the same appends without, on a real replica.

One primary and one replica on this machine, two links to the primary, and in each round the same number of appends over
each of them, with 64 and with 512 in flight. The replica follows in both, so only the waiting differs: without N, the
replica works while the next calls are made. One item is one call, as from as many pushers; in an Infer-Controller the
items of one tick share a call.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from dhsched.bench.harness import percentile, place, register
from dhsched.errors import DhschedError
from dhsched.local.ports import free_port
from dhsched.local.waiting import until
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import unmarked
from dhsched.ownership.limits import Limits
from dhsched.store.link.address import Address
from dhsched.store.link.link import LinkSettings
from dhsched.store.records import Records
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import Append, RedisStore

ITEM = unmarked("text", b"x" * 60, False)
IN_FLIGHT = (64, 512)
RATIO_64_MIN = 0.8  # Expected, at least: printed beside the measured ratio.
ONLINE_S = 60.0  # A replica that does not follow by then ends the benchmark with an error.


PATIENT = LinkSettings(deadline_s=60.0, settle_ms=30_000)  # A busy machine makes the figures worse, not wrong.

Live = tuple[str, Iterator[int]]
"""The name of a live, and the numbers of its items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    items: int = 4_096
    rounds: int = 21


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of one link in one round."""

    items_per_s: float
    p50_ms: float


async def bench_settle(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure both links in alternating rounds and return the figures."""
    limits = Limits(starts_create_max=max(IN_FLIGHT), pending_max=2 * size.items * (size.rounds + 1))
    async with (
        replicated() as address,
        await RedisStore.open(address, limits=limits, settings=PATIENT) as plain,
        await RedisStore.open(replace(address, replicas=1), limits=limits, settings=PATIENT) as settled,
    ):
        worker = await register(plain, "w", "bench", max(IN_FLIGHT))
        lives: list[Live] = [(f"t/l{n}", count(1)) for n in range(max(IN_FLIGHT))]
        for live, _ in lives:
            await place(plain, live, candidates=[worker])
        result: dict[str, Any] = {"bench": "settle", "items": size.items, "rounds": size.rounds}
        for in_flight in IN_FLIGHT:
            result |= await compare(size, lives[:in_flight], plain, settled, say)
        return {**result, "ratio_64_min": RATIO_64_MIN, "server": str(plain.link.server)}


async def compare(
    size: Size, lives: Sequence[Live], plain: RedisStore, settled: RedisStore, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure both links with one append per live in flight; a ratio is the median of the ratios within each round."""
    found: dict[str, list[Round]] = {"plain": [], "settled": []}
    in_flight, batches = len(lives), settled_batches(settled)
    for n in range(-1, size.rounds):  # The round before the first warms both; it does not count.
        for name, store in (("plain", plain), ("settled", settled)):
            measured = await measure(store, lives, size.items)
            say(f"round {n + 1}, {in_flight} in flight, {name}: {measured.items_per_s:.0f} items/s")
            if n >= 0:
                found[name].append(measured)
    pairs = zip(found["settled"], found["plain"], strict=True)
    figures: dict[str, Any] = {
        f"ratio_{in_flight}": round(statistics.median(ours.items_per_s / other.items_per_s for ours, other in pairs), 3)
    }
    for name, rounds in found.items():
        figures |= {
            f"{name}_items_per_s_{in_flight}": round(statistics.median(each.items_per_s for each in rounds)),
            f"{name}_p50_ms_{in_flight}": statistics.median(each.p50_ms for each in rounds),
        }
    calls = size.items // in_flight * in_flight * (size.rounds + 1)
    figures[f"calls_per_batch_{in_flight}"] = round(calls / (settled_batches(settled) - batches), 1)
    return figures


async def measure(store: RedisStore, lives: Sequence[Live], items: int) -> Round:
    """Append `items` items, to each live one after the other, and return the figures."""
    seconds: list[float] = []

    async def push(live: str, numbers: Iterator[int]) -> None:
        for _ in range(items // len(lives)):
            began = time.perf_counter()
            (outcome,) = await store.append_soon([Append(live, ITEM, "bench", next(numbers))], controller="")
            seconds.append(time.perf_counter() - began)
            if not isinstance(outcome, o.Appended):
                raise DhschedError(f"an append of the benchmark was answered {outcome}; this is a bug, report it")

    began = time.perf_counter()
    await asyncio.gather(*(push(live, numbers) for live, numbers in lives))
    wall_s = time.perf_counter() - began
    return Round(len(seconds) / wall_s, percentile([each * 1000 for each in seconds], 0.5))


def settled_batches(store: RedisStore) -> int:
    assert store.link.settling is not None
    return sum(store.link.settling.seconds.counts)


@asynccontextmanager
async def replicated() -> AsyncIterator[Address]:
    """Yield the address of a primary that a replica follows."""
    async with (
        Embedded(appendfsync="no", port=free_port(), password=secrets.token_hex(16)) as primary,
        Embedded(appendfsync="no") as replica,
        await Records.open(primary.address) as records,
    ):

        async def followed() -> bool:
            return "state=online" in (await records.server.info("replication")).get("slave0", "")

        await replica.follow(primary)
        await until(followed, "the replica to follow", ONLINE_S)
        yield primary.tcp_address
