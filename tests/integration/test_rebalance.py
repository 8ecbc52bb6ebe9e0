"""A Pool that is evened out, at boundaries, and one of which it is only said what would move (paper, 6.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.harness.draining import ids, settled, where
from tests.harness.fleet import Fleet, Record, fleet, until, until_so

EAGER = {"rebalance_s": 0.2}


async def pool(f: Fleet, **config: Any) -> None:
    assert (await f.post(f"{f.dispatch[0]}/v1/pools/gpu", config, put=True))[0] == 200


async def loads(f: Fleet) -> dict[str, int]:
    return {w["worker"].partition("#")[0]: w["load"] for w in (await f.get("/v1/workers"))["workers"]}


async def test_a_pool_is_evened_out_repeats_nothing_and_then_rests(tmp_path: Path) -> None:
    """Eight lives on one of two Workers, two of them immovable: advised first, then done, then nothing more."""
    record, lives = Record(), [f"l{n}" for n in range(8)]
    async with fleet(tmp_path, dispatch=2, with_loops=True, replica=EAGER) as f:
        await f.start_worker(record, "a", capacity=10)
        a = (await ids(f, 1))["a"]
        for live in lives:
            body = {"live_id": live, "digital_id": "demo", "immovable": live in ("l0", "l1")}
            assert (await f.post(f"{f.dispatch[0]}/v1/lives?wait_s=10", body))[0] in (200, 201)
            await f.push(live, "1", boundary=True)
        await until(lambda: len(record.consumed) == 8, "the first items")
        await f.start_worker(record, "b", capacity=10)
        b = (await ids(f, 2))["b"]
        await pool(f, rebalance="advise", rebalance_spread_pct=30, rebalance_moves_max=2)
        told = await until_so(lambda: f.get("/v1/pools/gpu/rebalance"), lambda told: told["advice"], "advice")
        assert told["advice"] == [{"source": a, "target": b, "lives": 3}], "from 8:0 to 5:3, which is even enough"
        await asyncio.sleep(0.5)
        assert await loads(f) == {"a": 8, "b": 0}, "it only says so"
        await pool(f, rebalance="act", rebalance_spread_pct=30, rebalance_moves_max=2)
        await until_so(lambda: loads(f), lambda found: found == {"a": 5, "b": 3}, "three moves")
        await asyncio.sleep(1.0)
        assert await loads(f) == {"a": 5, "b": 3}, "and it rests"
        for live in lives:
            await f.push(live, "2", boundary=True)
        await until(lambda: len(record.consumed) >= 16, "every item")
        for live in lives:
            assert record.texts(live) == ["1", "2"]
            at = await where(f, live)
            assert (at["cause"], at["epoch"]) in (("rebalance", 2), ("create", 1)), "nothing moved twice"
        assert {(await where(f, live))["worker"] for live in ("l0", "l1")} == {a}
        await settled(f)
