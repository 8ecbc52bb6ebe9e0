"""Lives are spread evenly, and nothing is refused while a slot is free: replicas and a store as users meet them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.store.steps.redis import RedisStore
from tests.harness.fleet import Fleet, fleet, until_so
from tests.harness.processes import processes
from tests.harness.replicas import register, replicas
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving

WORKERS, CAPACITY, LIVES = 4, 4, 8


async def test_eight_lives_on_four_workers_are_two_each_whichever_replica_is_asked() -> None:
    """As fast as they come, so the views are behind: what is true at the commit decides."""
    async with (
        empty_server("valkey") as server,
        await RedisStore.open(server.address) as store,
        replicas(server.address, "d1", "d2") as two,
        aiohttp.ClientSession() as http,
    ):
        for turn in range(10):
            await register(store, WORKERS, capacity=CAPACITY, pool=f"p{turn}", name=f"w{turn}-")
            named = {"pools": [{"pool": f"p{turn}"}]}
            async with http.put(f"{two[0].url}/v1/digital-ids/anna{turn}", json=named) as answer:
                assert answer.status == 201
        await asyncio.sleep(1)  # So that the views know the Workers; what is asked holds before as well.
        placed = []
        for turn in range(10):
            creates = [
                http.post(f"{two[n % 2].url}/v1/lives", json={"digital_id": f"anna{turn}", "live_id": f"L{turn}-{n}"})
                for n in range(LIVES)
            ]
            placed.append(Counter([(await (await create).json())["worker"] for create in creates]))
        assert [sorted(turn.values()) for turn in placed] == [[2, 2, 2, 2]] * 10


@pytest.mark.release
async def test_eight_lives_on_four_worker_processes_are_two_each_in_ten_rounds(tmp_path: Path) -> None:
    """Workers and replicas of their own, creates 1.2 s apart: the views are fresh. Each round ends its lives."""
    async with fleet(tmp_path) as f, processes(f) as p:
        for number in range(WORKERS):
            await p.worker(f"w{number}", capacity=CAPACITY)
        await p.workers_ready(WORKERS)
        for turn in range(10):
            made = []
            for n in range(LIVES):
                made.append((await f.create(f"L{turn}-{n}"))["worker"])
                await asyncio.sleep(1.2)
            assert sorted(Counter(made).values()) == [2, 2, 2, 2], f"round {turn}"
            for n in range(LIVES):
                status, _ = await f.post(f"{f.dispatch[0]}/v1/lives/L{turn}-{n}/end")
                assert status == 200
            await until_so(lambda: load_of(f), lambda load: load == 0, "every slot to be free again")


async def load_of(f: Fleet) -> int:
    return sum(int(row["load"]) for row in (await f.get("/v1/workers"))["workers"])


async def test_a_preferred_label_is_kept_and_its_workers_are_even() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        await labelled(api, "a100", 3)
        await api.workers(5, capacity=CAPACITY, name="plain")
        picky = {"pools": [{"pool": "gpu"}], "preferred_labels": ["a100"]}
        assert (await api("PUT", "/v1/digital-ids/picky", picky))[0] == 201
        made = Counter(
            [(await api.create(f"L{n}", digital_id="picky"))[1]["worker"].partition("#")[0] for n in range(9)]
        )
        assert made == {"a1000": 3, "a1001": 3, "a1002": 3}


async def test_a_pool_chooses_its_policy() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        await api.workers(4, capacity=CAPACITY)
        status, made = await api.create("L", "?explain=1")
        assert (status, made["explanation"]["policy"]) == (201, "emptiest")
        assert (await api("PUT", "/v1/pools/gpu", {"policy": "bottom-tier"}))[0] == 200
        status, made = await api.create("M", "?explain=1")
        assert (status, made["explanation"]["policy"], len(made["explanation"]["candidates"])) == (
            201,
            "bottom-tier",
            3,
        )
        status, problem = await api("PUT", "/v1/pools/gpu", {"policy": "strict-min"})
        assert status == 400 and "policy" in problem["detail"]


async def labelled(api: Api, label: str, count: int) -> None:
    for number in range(count):
        name = f"{label}{number}"
        found = await api.context.store.register_worker(
            name=name, boot=name, pool="gpu", capacity=CAPACITY, labels=label
        )
        await api.context.store.report(worker=found.worker, boot=name)
    await api.context.fleet.refresh()


@pytest.mark.release
@pytest.mark.parametrize("policy", ["emptiest", "bottom-tier", "exact"])
async def test_new_workers_at_their_start_budget_hide_nobody(policy: str) -> None:
    """More new Workers than a walk looks at take as many starts as they may; the others still have free slots."""
    new, old, load, capacity = 70, 20, 10, 40
    async with empty_server("valkey") as server, serving(server.address, policy=policy) as api:
        await api.configure()
        store = api.context.store
        create = Create(digital_id="anna", fingerprint="f")
        for worker in await register(store, old, capacity=capacity, name="old"):
            for n in range(load):
                live = f"default/{worker.partition('#')[0]}-{n}"
                made = await store.place(live=live, operation="c", cause="create", create=create, candidates=[worker])
                assert isinstance(made, o.Committed)
                await store.pull(live=live, worker=worker, epoch=made.generation.epoch, after=0, controller="c")
            # Its quick starts have multiplied its budget; here all have the same.
            await store.link.call("HDEL", store.keys.of("worker", worker), "pace")
        await register(store, new, capacity=capacity, name="new")
        await api.context.fleet.refresh()
        budget = store.limits.starts_create_max
        slots = budget * (new + old)
        answers = await asyncio.gather(*(api.create(f"L{n}") for n in range(slots)))
        assert Counter(status for status, _ in answers) == {201: slots}
        per_worker = Counter(document["worker"] for _, document in answers)
        assert set(per_worker.values()) == {budget}, "none was given more than its budget, and none was left out"
        assert (await api.create("one-more"))[1]["code"] == "STARTING"
