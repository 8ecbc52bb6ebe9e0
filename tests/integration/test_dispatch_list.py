"""Listing: a walk with the cursor meets every live that stays exactly once, whatever comes and goes meanwhile."""

import asyncio
from collections import Counter
from random import Random

import pytest

from dhsched.ownership.limits import Limits
from dhsched.ownership.steps.place import Create
from dhsched.store.link.link import LinkSettings
from dhsched.store.steps.redis import RedisStore
from tests.harness.replicas import register
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving

ROOMY = Limits(starts_create_max=10**6)
PATIENT = LinkSettings(deadline_s=30)  # 100,000 lives on a busy machine.


async def fill(store: RedisStore, names: list[str], workers: list[str]) -> None:
    """Lives, created quickly."""
    create = Create(digital_id="anna", fingerprint="f")

    async def one(number: int, name: str) -> None:
        await store.place(
            live=f"default/{name}",
            operation=f"op-{name}",
            cause="create",
            create=create,
            candidates=[workers[number % len(workers)]],
        )

    for at in range(0, len(names), 500):
        await asyncio.gather(*(one(number, name) for number, name in enumerate(names[at : at + 500])))


async def walk(api: Api, query: str, limit: int) -> list[str]:
    found, after = [], ""
    while True:
        status, page = await api("GET", f"/v1/lives?limit={limit}{query}{after}")
        assert status == 200
        found += [each["live_id"] for each in page["lives"]]
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


async def churn(store: RedisStore, workers: list[str], stop: asyncio.Event, rng: Random) -> None:
    """Lives between the others, born, swept and born again."""
    number = 0
    while not stop.is_set():
        names = [f"{rng.randrange(10**6):06d}-x{number + n}" for n in range(20)]
        number += 20
        await fill(store, names, workers)
        for name in names[::2]:
            # As a sweep leaves it: without waiting for a day.
            await store.end_live(live=f"default/{name}")
            await store.link.call("ZREM", store.keys.of("lives"), f"default/{name}")
            await store.link.call("DEL", store.keys.of("live", f"default/{name}"))
        await asyncio.sleep(0)


async def check_walk(lives: int, limit: int) -> None:
    async with (
        empty_server("valkey") as server,
        await RedisStore.open(server.address, limits=ROOMY, settings=PATIENT) as store,
        serving(server.address) as api,
    ):
        workers = await register(store, 16, capacity=100_000)
        rng = Random(1)
        staying = [f"{rng.randrange(10**6):06d}-{n:06d}" for n in range(lives)]
        await fill(store, staying, workers)
        stop = asyncio.Event()
        churning = asyncio.create_task(churn(store, workers, stop, Random(2)))
        try:
            met = Counter(await walk(api, "", limit))
        finally:
            stop.set()
            await churning
        assert [name for name in staying if met[name] != 1] == []
        assert max(met.values()) == 1
        assert list(met) == sorted(met)


async def test_a_walk_under_churn_meets_each_live_once() -> None:
    await check_walk(2_000, 150)


@pytest.mark.long
async def test_a_walk_through_100_000_lives_under_churn() -> None:
    await check_walk(100_000, 1_000)


async def test_filters_narrow_and_the_cursor_goes_on() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        store = api.context.store
        [a, b] = await api.workers(2, capacity=1_000)
        [c] = await api.workers(1, capacity=1_000, pool="cpu", name="c")
        for number, worker in enumerate((a, b, c)):
            await fill_on(store, worker, [f"L{number}{n}" for n in range(12)])
        await store.end_live(live="default/L05")
        assert len(await walk(api, "", 5)) == 36
        on_b = [f"L1{n}" for n in sorted(map(str, range(12)))]
        assert await walk(api, f"&worker={b.replace('#', '%23')}", 5) == on_b
        assert len(await walk(api, "&pool=cpu", 5)) == 12
        assert await walk(api, "&state=ended", 5) == ["L05"]
        assert await walk(api, "&digital_id=bob", 5) == [] and await walk(api, "&tenant=other", 5) == []
        assert len(await walk(api, "&state=open&digital_id=anna&pool=gpu", 7)) == 23


async def fill_on(store: RedisStore, worker: str, names: list[str]) -> None:
    await fill(store, names, [worker])
