"""A store or a replica that stands still kills nobody: no Worker is lost, no epoch moves, input goes on.

Replicas are processes with their loops running; Workers report over real links.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dhsched.local.pids import frozen
from dhsched.local.ports import free_port
from dhsched.local.process import Process
from dhsched.store.link.address import Address
from dhsched.store.server.embedded import Embedded
from tests.harness.fleet import Fleet, Record, until, until_so
from tests.harness.replicas import replicas
from tests.harness.servers import server_binary


class Standing(Fleet):
    """A fleet whose Dispatch replicas are processes, and whose store can be restarted where it is."""

    processes: list[Process]
    record: Record

    @property
    def address(self) -> Address:
        return self.server.tcp_address

    async def restart_store(self) -> None:
        await self.server.stop()
        self.server = Embedded(self.folder / "store", binary=server_binary("valkey"), port=self.server.port)
        await self.server.start()

    async def lives(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        after = ""
        while True:
            page = await self.get(f"/v1/lives?limit=1000{after}")
            found |= {live["live_id"]: live for live in page["lives"]}
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"

    async def beats(self) -> dict[str, int]:
        return {row["worker"]: row["beat"] for row in (await self.get("/v1/workers"))["workers"]}


@asynccontextmanager
async def standing(folder: Path, *, workers: int, lives: int, ttl_s: float) -> AsyncIterator[Standing]:
    async with AsyncExitStack() as stack:
        server = Embedded(folder / "store", binary=server_binary("valkey"), port=free_port())
        await server.start()
        f = Standing(server, folder, stack)
        stack.push_async_callback(lambda: f.server.stop())
        started = replicas(f.address, "d1", "d2", DHSCHED_DISPATCH_WORKER_TTL_S=str(ttl_s))
        f.processes = await stack.enter_async_context(started)
        f.dispatch = [replica.url for replica in f.processes]
        f.http = await stack.enter_async_context(aiohttp.ClientSession())
        f.record = Record()
        await f.start_infer()
        await f.configure()
        for n in range(workers):
            await f.start_worker(f.record, f"w{n}", capacity=lives)
        await until_so(f.beats, lambda found: len(found) == workers, f"{workers} Workers")
        for n in range(lives):
            await f.create(f"L{n}")
        await until_so(
            f.lives, lambda found: all(live["claimed"] for live in found.values()), "every live to be claimed"
        )
        yield f


async def nobody_noticed(f: Standing, disturb: Callable[[], Awaitable[None]], *, ttl_s: float) -> None:
    """Do it, and give the fleet the time in which it would have called somebody lost."""
    before, beats = await f.lives(), await f.beats()
    await disturb()

    def moved(now: dict[str, int]) -> bool:
        return now.keys() == beats.keys() and all(now[worker] > beats[worker] for worker in beats)

    await until_so(lambda: settled_beats(f), moved, "every Worker to report again")
    await asyncio.sleep(ttl_s + 1.5)
    kinds = [event["kind"] for event in (await f.get("/v1/events?limit=1000"))["events"]]
    assert set(kinds) <= {"worker_registered", "brake_on", "brake_off"}, kinds
    after = await f.lives()
    assert {live: (row["worker"], row["epoch"]) for live, row in after.items()} == {
        live: (row["worker"], row["epoch"]) for live, row in before.items()
    }
    said = f"after {len(f.record.consumed)}"
    for live in list(after)[:10]:
        assert (await f.push(live, said))[0] == 200
        await until(lambda live=live: said in f.record.texts(live), f"input on {live}")  # type: ignore[misc]


async def settled_beats(f: Standing) -> dict[str, int]:
    """Beats, once the store and a replica answer again."""
    for url in f.dispatch:
        try:
            async with f.http.get(f"{url}/v1/workers", timeout=aiohttp.ClientTimeout(total=3)) as response:
                if response.status == 200:
                    return {row["worker"]: row["beat"] for row in (await response.json())["workers"]}
        except (aiohttp.ClientError, TimeoutError):
            continue
    return {}


def paused(pid: int, wait_s: float) -> Callable[[], Awaitable[None]]:
    async def pause() -> None:
        with frozen(pid):
            await asyncio.sleep(wait_s)

    return pause


@pytest.mark.release
async def test_a_store_that_is_paused_and_restarted(tmp_path: Path) -> None:
    async with standing(tmp_path, workers=3, lives=12, ttl_s=2) as f:
        await nobody_noticed(f, paused(f.server.pid, 3), ttl_s=2)
        await nobody_noticed(f, f.restart_store, ttl_s=2)


@pytest.mark.release
async def test_a_replica_that_stands_still(tmp_path: Path) -> None:
    async with standing(tmp_path, workers=3, lives=12, ttl_s=3) as f:
        f.dispatch.reverse()  # The test asks the one that goes on.
        await nobody_noticed(f, paused(f.processes[0].pid, 4), ttl_s=3)


@pytest.mark.long
async def test_ten_seconds_under_eight_workers_and_400_lives(tmp_path: Path) -> None:
    async with standing(tmp_path, workers=8, lives=400, ttl_s=3) as f:
        await nobody_noticed(f, paused(f.server.pid, 10), ttl_s=3)
        await nobody_noticed(f, f.restart_store, ttl_s=3)
        f.dispatch.reverse()
        await nobody_noticed(f, paused(f.processes[0].pid, 10), ttl_s=3)
