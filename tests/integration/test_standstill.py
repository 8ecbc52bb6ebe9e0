"""A store or a replica that stands still kills nobody: no Worker is lost, no epoch moves, input goes on.

Replicas are processes with their loops running; Workers report over real links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import aiohttp
import pytest

from dhsched.local.pids import frozen
from tests.harness.fleet import until, until_so
from tests.harness.standing import Standing, standing


async def nobody_noticed(
    f: Standing, disturb: Callable[[], Awaitable[None]], *, ttl_s: float, expected: Sequence[str] = ()
) -> None:
    """Do it, and give the fleet the time in which it would have called somebody lost. `expected` are events besides the
    usual ones."""
    before, beats = await f.lives(), await f.beats()
    await disturb()

    def moved(now: dict[str, int]) -> bool:
        return now.keys() == beats.keys() and all(now[worker] > beats[worker] for worker in beats)

    await until_so(lambda: settled_beats(f), moved, "every Worker to report again")
    await asyncio.sleep(ttl_s + 1.5)
    kinds = [event["kind"] for event in (await f.get("/v1/events?limit=1000"))["events"]]
    assert set(kinds) <= {"worker_registered", "brake_on", "brake_off", *expected}, kinds
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
        await nobody_noticed(f, f.restart_store, ttl_s=2, expected=["store_entered"])


@pytest.mark.release
async def test_a_replica_that_stands_still(tmp_path: Path) -> None:
    async with standing(tmp_path, workers=3, lives=12, ttl_s=3) as f:
        f.dispatch.reverse()  # The test asks the one that goes on.
        await nobody_noticed(f, paused(f.processes[0].pid, 4), ttl_s=3)


@pytest.mark.long
async def test_ten_seconds_under_eight_workers_and_400_lives(tmp_path: Path) -> None:
    async with standing(tmp_path, workers=8, lives=400, ttl_s=3) as f:
        await nobody_noticed(f, paused(f.server.pid, 10), ttl_s=3)
        await nobody_noticed(f, f.restart_store, ttl_s=3, expected=["store_entered"])
        f.dispatch.reverse()
        await nobody_noticed(f, paused(f.processes[0].pid, 10), ttl_s=3, expected=["store_entered"])
