"""Time of a create over HTTP and of its placement step alone, on a fleet of 1,000 Workers.

Over HTTP: the replica, the store and the load generator (this process) are three processes. `round_trips_per_create` is
counted by the replica's store link.

Without HTTP: the placement step alone (choose, commit, learn), compared with the paper's separate commands with locks
and compare-and-set, on the same link to the same server, in alternating rounds; the result is the median. `ratio_1` is
with one placement in flight, `ratio_256` with 256, both with two attempts, which the paper calls its common case: the
first candidate has filled up since the snapshot, the second has a free slot. `..._first_try` is with one attempt, the
usual case with a fresh view; it is the smaller ratio, and the one to read for a fleet with free slots.
`..._pipelined` is two attempts against a peer that pipelines its commands (separate_commands.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from dhsched.bench.harness import figure, percentile, place, register
from dhsched.bench.separate_commands import SCRIPTS, SeparateCommands
from dhsched.client.models.pools import DigitalIdConfig, PoolConfig, PoolTier
from dhsched.dispatch.config import DIGITAL_IDS, POOLS
from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps.place import Create
from dhsched.placement import POLICIES, Choice, NoEligiblePool, Policy, choose
from dhsched.settings import DispatchSettings
from dhsched.store.homes import Homes
from dhsched.store.link.link import Link
from dhsched.store.records import Records
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import default_scripts
from dhsched.web.figures import PAGE_KEPT_MAX_S

CAPACITY = 10_000
PAPER = POLICIES["bottom-tier"]  # Names candidates, which is how separate commands find a Worker.
FULL_WORKERS = 64  # Workers without a free slot, for the first of two attempts.
NO_LOOPS = {
    "DHSCHED_DISPATCH_WORKER_TTL_S": "3600",
    "DHSCHED_DISPATCH_RECOVER_S": "60",
    "DHSCHED_DISPATCH_METER_S": "3600",
}
"""Settings that keep the replica's loops quiet: the benchmark's Workers neither report nor claim, and only the store
calls of creates are counted."""
# Expected, at least: times as fast as separate commands with 1 and 256 connections; printed beside the measured ratios.
RATIO_1_MIN = 2.5
RATIO_256_MIN = 1.5
Place = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    workers: int = 1_000
    creates: int = 4_000  # Over HTTP, for each number of connections.
    rounds: int = 5
    ops_1: int = 300  # Placements of a round with one in flight,
    ops_256: int = 2_000  # and with 256.


async def bench_create(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure all parts, call `say` with progress, and return the figures."""
    async with Embedded(appendfsync="no") as server:
        # No live of the benchmark is ever claimed, so the limit on starting lives must not be reached. The replica has
        # the default limit, 16 for each Worker, and is measured first.
        limits = Limits(starts_create_max=CAPACITY)
        async with (
            await RedisStore.open(server.address, limits=limits) as store,
            await Records.open(server.address) as records,
        ):
            say(f"registering {size.workers} Workers")
            workers = await _register(store, size.workers)
            return {
                "bench": "create",
                "workers": size.workers,
                "server": str(store.link.server),
                **await _over_http(size, say, server.address.url()),
                **await _without_http(size, say, store, records, workers),
                "ratio_1_min": RATIO_1_MIN,
                "ratio_256_min": RATIO_256_MIN,
                "cpus": os.cpu_count(),
            }


async def _register(store: RedisStore, count_: int) -> list[str]:
    await store.records.config.put(POOLS, "gpu", PoolConfig())
    await store.records.config.put(DIGITAL_IDS, "anna", DigitalIdConfig([PoolTier("gpu")]))
    return list(await asyncio.gather(*(register(store, f"w{number}", "gpu", CAPACITY) for number in range(count_))))


# -- without HTTP


async def _without_http(
    size: Size, say: Callable[[str], None], store: RedisStore, records: Records, workers: list[str]
) -> dict[str, Any]:
    fleet = Fleet(records, DispatchSettings())
    await fleet.start()
    scripts = {name: script.source for name, script in default_scripts().items()}
    homes = Homes("main")
    async with await Link.open(store.link.address, {**scripts, **SCRIPTS}, entry=homes) as link:
        step = RedisStore(link, cell="main", limits=store.limits, scripts=default_scripts(), homes=homes)
        plain, pipelined = SeparateCommands(link), SeparateCommands(link, pipelined=True)
        await asyncio.gather(*(plain.register(worker, "gpu", CAPACITY) for worker in workers))
        full = await _fill(step, plain)
        ways = {
            "one_step": _one_step(step, fleet, full),
            "separate": _separate(plain, fleet, full),
            "pipelined": _separate(pipelined, fleet, full),
            "one_step_first": _one_step(step, fleet),
            "separate_first": _separate(plain, fleet),
        }
        try:
            result: dict[str, Any] = {
                "separate_commands": await _calls(link, ways["separate"], "count-2"),
                "separate_commands_first_try": await _calls(link, ways["separate_first"], "count-1"),
            }
            for in_flight, ops in ((1, size.ops_1), (256, size.ops_256)):
                result |= await _rounds(size, say, ways, in_flight, ops)
        finally:
            await fleet.stop()
    return result


async def _rounds(
    size: Size, say: Callable[[str], None], ways: dict[str, Place], in_flight: int, ops: int
) -> dict[str, Any]:
    per_s: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, size.rounds):  # The round before the first warms everything up and does not count.
        for name, way in ways.items():
            took_s = await _timed(way, f"{name}-{in_flight}-{number}", in_flight, ops)
            say(f"{name:14} {in_flight:3} in flight {ops / took_s:8.0f} placements/s")
            if number >= 0:
                per_s[name].append(ops / took_s)

    # Each ratio is of two neighbouring measurements; the median of ratios is steadier than the ratio of medians.
    def ratio(ours: str, theirs: str) -> float:
        return round(statistics.median(one / other for one, other in zip(per_s[ours], per_s[theirs], strict=True)), 2)

    return {
        f"place_per_s_{in_flight}": round(statistics.median(per_s["one_step"])),
        f"separate_per_s_{in_flight}": round(statistics.median(per_s["separate"])),
        f"ratio_{in_flight}": ratio("one_step", "separate"),
        f"ratio_{in_flight}_first_try": ratio("one_step_first", "separate_first"),
        f"ratio_{in_flight}_pipelined": ratio("one_step", "pipelined"),
    }


async def _timed(place: Place, prefix: str, in_flight: int, ops: int) -> float:
    numbers = count()

    async def worker() -> None:
        while (number := next(numbers)) < ops:
            await place(f"{prefix}-{number}")

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return time.perf_counter() - began


async def _calls(link: Link, place: Place, name: str) -> int:
    """Return the number of commands that one placement sends."""
    before = link.calls
    await place(name)
    return link.calls - before


async def _fill(store: RedisStore, commands: SeparateCommands) -> list[str]:
    """Register Workers without a free slot on both sides and return them: candidates as an old snapshot names them."""
    full = []
    for number in range(FULL_WORKERS):
        name = f"full-{number}"
        worker = await register(store, name, "gpu", 1)
        await commands.register(worker, "gpu", 1)
        await place(store, f"default/{name}", candidates=[worker])
        await commands.create(f"default/{name}", name, (worker,))
        full.append(worker)
    return full


def _one_step(store: RedisStore, fleet: Fleet, full: Sequence[str] = ()) -> Place:
    """Return a function that places one live as dispatch/commit.py does, without its metrics."""
    create = Create(digital_id="anna", fingerprint="f" * 32)
    rng = Random(1)

    async def place_one(name: str) -> None:
        choice = await _choose(fleet, rng, PAPER if full else fleet.policy)
        # A full Worker comes first and the last candidate is dropped: as if the snapshot were old.
        first = [full[int(rng.random() * len(full))]] if full else []
        candidates = [*first, *choice.without(choice.candidates[-1])] if first else choice.ranks
        sent_rev = fleet.view.rev
        outcome = await place(store, f"default/{name}", create=create, candidates=candidates, pools=choice.pools)
        fleet.learn(outcome, sent_rev=sent_rev)

    return place_one


def _separate(commands: SeparateCommands, fleet: Fleet, full: Sequence[str] = ()) -> Place:
    rng = Random(1)

    async def place(name: str) -> None:
        choice = await _choose(fleet, rng, PAPER)
        first = (full[int(rng.random() * len(full))],) if full else ()
        worker = await commands.create(f"default/{name}", name, (*first, *choice.candidates[: -1 if first else None]))
        fleet.view.committed(worker, rev=fleet.view.rev + 1)

    return place


async def _choose(fleet: Fleet, rng: Random, policy: Policy) -> Choice:
    request = await fleet.request("anna")
    assert request is not None
    choice = choose(fleet.view, request, rng=rng, now=0.0, policy=policy)
    assert not isinstance(choice, NoEligiblePool)
    return choice


# -- over HTTP


async def _over_http(size: Size, say: Callable[[str], None], store_url: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    async with Deployment(store_url) as processes:
        replica = await processes.dispatch("bench", environment=NO_LOOPS)
        url = await replica.until_ready()
        port = int(url.rpartition(":")[2])
        await _creates(port, "warm", 200, 16)
        round_trips = []
        for connections in (16, 256):
            before = await calls_of(url)
            load = await _creates(port, f"http-{connections}", size.creates, connections)
            calls = await calls_of(url) - before
            result |= {
                f"creates_per_s_{connections}": round(load.per_s),
                f"p50_ms_{connections}": round(load.percentile_ms(0.5), 2),
                f"p99_ms_{connections}": round(load.percentile_ms(0.99), 2),
            }
            round_trips.append(calls / size.creates)
            say(f"{connections} connections: {load.per_s:.0f} creates/s")
        # The replica also reads the revision of its keys on this link, once a second: the lower has fewer of these.
        result["round_trips_per_create"] = round(min(round_trips), 3)
    return result


async def calls_of(url: str) -> float:
    """Return how many calls the replica has made to the store, once no page of metrics from before is kept."""
    await asyncio.sleep(PAGE_KEPT_MAX_S)
    return await figure(url, "dhsched_store_calls_total")


async def _creates(port: int, prefix: str, number: int, connections: int) -> Load:
    bodies = [
        json.dumps({"digital_id": "anna", "live_id": f"{prefix}-{n}", "metadata": {"user": f"u{n}"}}).encode()
        for n in range(number)
    ]
    return await post_all("127.0.0.1", port, "/v1/lives", bodies, connections=connections, expect=201)


# -- a cheap load generator: plain HTTP/1.1 over persistent connections


@dataclass(frozen=True, slots=True)
class Load:
    """Times of the requests of a run, in the order in which they ended."""

    seconds: list[float]
    wall_s: float

    @property
    def per_s(self) -> float:
        return len(self.seconds) / self.wall_s

    def percentile_ms(self, share: float) -> float:
        return percentile([each * 1000 for each in self.seconds], share)


async def post_all(host: str, port: int, path: str, bodies: list[bytes], *, connections: int, expect: int) -> Load:
    """POST every body once over `connections`, each with one request in flight, and return the times."""
    queue = iter(bodies)
    seconds: list[float] = []
    clients = [await asyncio.open_connection(host, port) for _ in range(connections)]
    began = time.perf_counter()
    try:
        await asyncio.gather(*(_client(*client, host, path, queue, seconds, expect) for client in clients))
    finally:
        for _, writer in clients:
            writer.close()
    return Load(seconds, time.perf_counter() - began)


async def _client(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    path: str,
    queue: Iterator[bytes],
    seconds: list[float],
    expect: int,
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
    for body in queue:
        began = time.perf_counter()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        status, answer = await read_response(reader)
        seconds.append(time.perf_counter() - began)
        if status != expect:
            raise DhschedError(
                f"the benchmark's request was answered {status}: {answer[:300]!r}; this is a bug, report it"
            )


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    at = lowered.index(b"content-length:") + 15
    size = int(lowered[at : lowered.index(b"\r\n", at)])
    return int(head[9:12]), await reader.readexactly(size)
