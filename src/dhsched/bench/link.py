"""Client CPU per EVALSHA: the store link compared with auto-pipelined redis-py, in one run on one server.

Both run the same small compare-and-set script from the same number of coroutines on the same event loop (uvloop, as in
the product). The link keeps its deadlines, error mapping and limits. redis-py (asyncio, with hiredis) is used as a team
would that needs throughput: calls that arrive while a pipeline is under way share the next one (`Gather` in
peer_clients.py).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from dhsched.bench.harness import Cost, measure, median_cost
from dhsched.bench.peer_clients import Gather, redispy
from dhsched.errors import DhschedError
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
from dhsched.store.server.embedded import Embedded

COMPARE_AND_SET = b"""
local current = redis.call('HGET', KEYS[1], 'epoch') or '0'
if current ~= ARGV[1] then return {'STALE', current} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2])
return {'COMMITTED', ARGV[2]}
"""
RATIO_MIN = 3.0  # Expected, at least: printed beside the measured ratio.

Step = Callable[[str, int], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured. redis-py gets fewer operations per round because each takes longer."""

    coroutines: int = 500
    rounds: int = 7
    link_ops_each: int = 60
    redispy_ops_each: int = 20


async def bench_link(size: Size, report: Callable[[str], None]) -> dict[str, Any]:
    """Measure both clients, call `report` after each round, and return the figures."""
    redis = redispy()
    async with Embedded() as server, await Link.open(server.address, {"cas": COMPARE_AND_SET}) as link:
        client = redis.asyncio.Redis(unix_socket_path=server.address.path)
        sha = await client.script_load(COMPARE_AND_SET)

        async def send(calls: list[tuple[str, int]]) -> list[Any]:
            async with client.pipeline(transaction=False) as pipe:
                for key, epoch in calls:
                    pipe.evalsha(sha, 1, key, epoch, epoch + 1)
                replies: list[Any] = await pipe.execute()
                return replies

        pipelined = Gather(send)

        async def theirs(key: str, epoch: int) -> Any:
            return (await pipelined.put([(key, epoch)]))[0]

        try:
            costs = await _rounds(size, report, lambda key, epoch: link.run("cas", (key,), (epoch, epoch + 1)), theirs)
        finally:
            await client.aclose()
        version = str(link.server)
    link_cost, redispy_cost = (median_cost(each) for each in costs)
    return _result(size, link_cost, redispy_cost, version, redis.__version__, server.address)


async def _rounds(size: Size, report: Callable[[str], None], ours: Step, theirs: Step) -> tuple[list[Cost], list[Cost]]:
    costs: dict[str, list[Cost]] = {"link": [], "redispy": []}
    # The round before the first opens redis-py's connection and warms both sides; it does not count.
    for n in range(-1, size.rounds):
        for name, step, each in (("link", ours, size.link_ops_each), ("redispy", theirs, size.redispy_ops_each)):
            cost = await _round(size.coroutines, each, f"dh:{{main}}:{name}:{n}", step)
            report(f"{'warm-up' if n < 0 else f'round {n}':8} {name:8} {cost.cpu_us_per_op:8.1f} us CPU per operation")
            if n >= 0:
                costs[name].append(cost)
    return costs["link"], costs["redispy"]


async def _round(coroutines: int, ops_each: int, prefix: str, step: Step) -> Cost:
    async def commit_epochs(key: str) -> None:
        for epoch in range(ops_each):
            reply = await step(key, epoch)
            # Every commit must succeed: a benchmark whose calls fail quickly measures nothing.
            if reply[0] != b"COMMITTED":
                raise DhschedError(f"the benchmark's script answered {reply!r} for {key}; this is a bug, report it")

    async def work() -> None:
        await asyncio.gather(*(commit_epochs(f"{prefix}:{n}") for n in range(coroutines)))

    return await measure(work, coroutines * ops_each)


def _result(
    size: Size, ours: Cost, theirs: Cost, server: str, redispy_version: str, address: Address
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    return {
        "bench": "link",
        "link_us_per_op": round(ours.cpu_us_per_op, 2),
        "redispy_pipelined_us_per_op": round(theirs.cpu_us_per_op, 2),
        "ratio_vs_redispy_pipelined": round(theirs.cpu_us_per_op / ours.cpu_us_per_op, 2),
        "ratio_min": RATIO_MIN,
        "link_ops_per_s": round(ours.ops_per_s),
        "redispy_pipelined_ops_per_s": round(theirs.ops_per_s),
        "coroutines": size.coroutines,
        "rounds": size.rounds,
        "server": server,
        "socket": "unix" if address.path else "tcp",
        "redispy": redispy_version,
        "loop": type(loop).__module__.partition(".")[0],
    }
