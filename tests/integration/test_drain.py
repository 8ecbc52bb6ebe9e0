"""Planned drain end to end: real Workers and controllers, text flowing, nothing consumed twice (paper, 6.3 and 7.6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dhsched.ownership import invariants
from dhsched.store.raw import read_state
from tests.integration.fleet import Fleet, Record, fleet, until

QUICK = {"drain_s": 0.1, "worker_ttl_s": 2}


def quoted(worker: str) -> str:
    return worker.replace("#", "%23")


async def drain(f: Fleet, worker: str, **wish: Any) -> Any:
    status, document = await f.post(f"{f.dispatch[0]}/v1/workers/{quoted(worker)}/drain", wish)
    assert status == 200, document
    return document


async def progress(f: Fleet, worker: str) -> Any:
    return await f.get(f"/v1/workers/{quoted(worker)}/drain")


async def until_done(f: Fleet, worker: str, wait_s: float = 20.0) -> Any:
    give_up = asyncio.get_running_loop().time() + wait_s
    while not (at := await progress(f, worker))["done"]:
        assert asyncio.get_running_loop().time() < give_up, at
        await asyncio.sleep(0.05)
    return at


async def ids(f: Fleet, count: int) -> dict[str, str]:
    for _ in range(200):
        found = {w["worker"].partition("#")[0]: w["worker"] for w in (await f.get("/v1/workers"))["workers"]}
        if len(found) >= count:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{count} Workers were not there")


async def settled(f: Fleet) -> None:
    """What must always hold, holds."""
    assert invariants.of_state(await read_state(f.controllers[0].context.store.link, "main")) == []


def moves(f: Fleet, how: str) -> float:
    return sum(
        replica.service.registry.get_sample_value("dhsched_drain_moves_total", {"how": how}) or 0
        for replica in f.replicas
    )


async def test_a_drain_moves_every_live_and_repeats_nothing(tmp_path: Path) -> None:
    """Two replicas, text flowing to every live all the time, more lives than cutovers."""
    record, lives = Record(), [f"l{n}" for n in range(9)]
    async with fleet(tmp_path, dispatch=2, infer=2, with_loops=True, replica=QUICK) as f:
        await f.start_worker(record, "a", capacity=10)
        a = (await ids(f, 1))["a"]
        for live in lives:
            await f.create(live)
        await f.start_worker(record, "b", capacity=10)
        await ids(f, 2)
        stop, pushed = asyncio.Event(), dict.fromkeys(lives, 0)

        async def talk(live: str) -> None:
            while not stop.is_set():
                pushed[live] += 1
                status, _ = await f.push(live, str(pushed[live]), boundary=pushed[live] % 3 == 0)
                assert status < 300
                await asyncio.sleep(0.02)

        talking = [asyncio.create_task(talk(live)) for live in lives]
        await until(lambda: all(record.texts(live) for live in lives), "the first items")
        asked = await drain(f, a)
        assert asked["mode"] == "draining" and asked["lives"] == 9
        at = await until_done(f, a)
        assert at["moved"] == 9 and at["left"] == 0
        await asyncio.sleep(0.2)
        stop.set()
        await asyncio.gather(*talking)
        await until(lambda: all(len(record.texts(live)) >= pushed[live] for live in lives), "every item")
        for live in lives:
            assert record.texts(live) == [str(n) for n in range(1, pushed[live] + 1)], "in order, none twice"
            generations = (await f.get(f"/v1/lives/{live}/history"))["generations"]
            assert generations[0]["cause"] == "drain" and generations[0]["worker"].startswith("b#")
        assert moves(f, "planned") == 9 and moves(f, "forced") == 0
        await settled(f)
