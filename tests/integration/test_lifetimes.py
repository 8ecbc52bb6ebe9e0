"""Lifetimes of lives, from create to the event of their end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fleet import Fleet, Record, fleet, until_so
from tests.harness.servers import empty_server
from tests.harness.serving import serving


async def test_a_create_takes_its_lifetime_or_that_of_the_preferred_pool() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        await api.workers(1, capacity=10)

        async def lifetime(live: str) -> tuple[float | None, float | None]:
            document = (await api("GET", f"/v1/lives/{live}"))[1]
            return document["idle_s"], document["max_s"]

        assert (await api.create("plain"))[0] == 201
        assert await lifetime("plain") == (None, None)
        assert (await api("PUT", "/v1/pools/gpu", {"idle_s": 60, "max_s": 3600}))[0] == 200
        assert (await api("PUT", "/v1/pools/other", {"idle_s": 5}))[0] == 201
        tiers = [{"pool": "other", "tier": 1}, {"pool": "gpu"}]
        assert (await api("PUT", "/v1/digital-ids/anna", {"pools": tiers}))[0] == 200
        assert (await api.create("by-pool"))[0] == 201
        assert await lifetime("by-pool") == (60, 3600)
        assert (await api.create("own", idle_s=1.5, max_s=None))[0] == 201
        assert await lifetime("own") == (1.5, None)

        # A retry is the same create, whatever the Pool says by now; with another lifetime it is another one.
        assert (await api("PUT", "/v1/pools/gpu", {}))[0] == 200
        assert (await api.create("by-pool"))[0] == 200
        assert (await api.create("own", idle_s=1.5, max_s=None))[0] == 200
        for other in ({"idle_s": 2, "max_s": None}, {"idle_s": 1.5}, {"idle_s": 1.5, "max_s": 7}):
            status, problem = await api.create("own", **other)
            assert (status, problem["code"]) == (409, "CONFLICT")


@pytest.mark.parametrize("wrong", [{"idle_s": 0}, {"idle_s": 0.9}, {"max_s": 2_592_001}, {"max_s": "4h"}])
async def test_a_lifetime_has_bounds(wrong: dict[str, Any]) -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        status, problem = await api.create("L", **wrong)
        assert (status, problem["code"]) == (400, "BAD_REQUEST")
        assert (await api("PUT", "/v1/pools/gpu", wrong))[0] == 400


async def test_a_live_without_input_ends_and_its_slot_is_free(tmp_path: Path) -> None:
    async with fleet(tmp_path, with_loops=True) as f:
        await f.start_worker(Record(), "w1")
        await create(f, idle_s=1)
        assert (await f.push("L", "hello"))[0] == 200
        told = await until_so(lambda: expiries(f), lambda found: len(found) == 1, "the event")
        assert (told[0]["live_id"], told[0]["numbers"]["reason"]) == ("L", "idle")
        live = await f.get("/v1/lives/L")
        assert (live["state"], live["expired"], live["acked"]) == ("ended", "idle", 1)
        history = await f.get("/v1/lives/L/history")
        assert history["expired"] == "idle" and history["ended_at_ms"] >= history["created_at_ms"] + 1_000
        await until_so(lambda: f.get("/v1/workers"), lambda found: found["workers"][0]["load"] == 0, "a free slot")


async def test_a_live_that_is_too_old_ends_although_it_gets_input(tmp_path: Path) -> None:
    async with fleet(tmp_path, with_loops=True) as f:
        await f.start_worker(Record(), "w1")
        await create(f, idle_s=60, max_s=1)
        answer = 200
        while answer == 200:
            answer, problem = await f.push("L", "hello")
            await asyncio.sleep(0.05)
        assert problem["code"] in ("CLOSING", "ENDED")
        told = await until_so(lambda: expiries(f), lambda found: len(found) == 1, "the event")
        assert told[0]["numbers"]["reason"] == "age"
        live = await until_so(lambda: f.get("/v1/lives/L"), lambda found: found["state"] == "ended", "its end")
        assert live["dropped"] == {"interrupt": 0, "end": 0, "poison": 0}


async def create(f: Fleet, **lifetime: float) -> None:
    body = {"digital_id": "demo", "live_id": "L", **lifetime}
    status, placed = await f.post(f"{f.dispatch[0]}/v1/lives?wait_s=10", body)
    assert status == 201, placed


async def expiries(f: Fleet) -> list[Any]:
    return [each for each in (await f.get("/v1/events"))["events"] if each["kind"] == "live_expired"]
