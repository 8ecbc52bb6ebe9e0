"""A Pool that is evened out, at boundaries, and one of which it is only said what would move (paper, 6.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dhsched import cli
from dhsched.cli.pool import EVEN_OUT_S
from tests.harness.draining import ids, settled, where
from tests.harness.fleet import Fleet, Record, fleet, until, until_so
from tests.harness.processes import start

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


async def test_a_person_is_told_that_a_pool_is_uneven_and_evens_it_out_with_one_verb(tmp_path: Path) -> None:
    """As after a rolling restart: everything is on the Worker that was not restarted last."""
    record = Record()
    async with fleet(tmp_path, with_loops=True, replica=EAGER) as f:

        async def dhsched(*words: str) -> Any:
            result = await asyncio.to_thread(CliRunner().invoke, cli.app, [*words], env={"DHSCHED_URL": f.dispatch[0]})
            assert result.exit_code == 0, (result.output, result.exception)
            return result

        await f.start_worker(record, "a", capacity=10)
        await ids(f, 1)
        for n in range(7):
            assert (await f.post(f"{f.dispatch[0]}/v1/lives?wait_s=10", {"live_id": f"l{n}", "digital_id": "demo"}))[
                0
            ] == 201
            await f.push(f"l{n}", "1", boundary=True)
        await until(lambda: len(record.consumed) == 7, "the first items")
        await f.start_worker(record, "b", capacity=10)
        await ids(f, 2)
        advice = "Pool gpu is uneven: 3 lives would move; dhsched pool rebalance gpu --now"
        await until_so(lambda: f.get("/v1/pools/gpu/rebalance"), lambda told: told["lives"] == 3, "advice")
        assert advice in (await dhsched("worker", "ls")).stderr
        assert advice in (await dhsched("top", "--once")).stdout
        before = (await f.get("/v1/pools/gpu"))["config"]
        assert before["rebalance"] == "advise", "the default"
        await dhsched("pool", "rebalance", "gpu", "--now")
        assert await loads(f) == {"a": 4, "b": 3}
        assert (await f.get("/v1/pools/gpu"))["config"] == before
        assert "uneven" not in (await dhsched("worker", "ls")).stderr


async def test_a_verb_that_is_killed_leaves_the_pool_as_it_was(tmp_path: Path) -> None:
    """Nobody has to be alive to end it: the request is for some seconds, and the verb repeats it while it waits."""
    async with fleet(tmp_path, with_loops=True, replica={"rebalance_s": 3600}) as f:
        await f.start_worker(Record(), "a", capacity=10)
        await ids(f, 1)
        for n in range(7):
            await f.create(f"l{n}")
        await f.start_worker(Record(), "b", capacity=10)
        await ids(f, 2)
        await until_so(lambda: f.get("/v1/pools/gpu/rebalance"), lambda told: told["lives"] == 3, "advice")
        before = (await f.get("/v1/pools/gpu"))["config"]
        verb = await start("pool", "rebalance", "gpu", "--now", environment={"DHSCHED_URL": f.dispatch[0]})
        told = await until_so(lambda: f.get("/v1/pools/gpu/rebalance"), lambda told: told["mode"] == "act", "the verb")
        assert told["lives"] == 3, "it waits for a turn of a replica"
        assert (await f.get("/v1/pools/gpu"))["config"] == before
        verb.kill()
        await verb.ended()
        assert (await f.get("/v1/pools/gpu"))["config"] == before
        store = f.replicas[0].store
        left_ms = await store.link.call("PTTL", store.keys.of("evening", "gpu"))
        assert 0 < int(left_ms) <= 1_000 * EVEN_OUT_S
        body = {"seconds": 0}
        status, told = await f.post(f"{f.dispatch[0]}/v1/pools/gpu/rebalance", body)
        assert (status, told["mode"]) == (200, "advise"), "as the verb does at its end"
