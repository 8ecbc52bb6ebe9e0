"""Workers, Pools and DigitalIDs over HTTP."""

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with empty_server("valkey") as server, serving(server.address) as api:
        yield api


async def test_workers_are_listed_a_page_at_a_time_and_filtered(api: Api) -> None:
    made = sorted(await api.workers(5, capacity=2) + await api.workers(2, capacity=2, pool="cpu", name="c"))
    listed: list[str] = []
    after = ""
    while True:
        _, page = await api("GET", f"/v1/workers?limit=3{after}")
        listed += [each["worker"] for each in page["workers"]]
        if page["next"] is None:
            break
        after = f"&after={quote(page['next'])}"
    assert listed == made
    assert len((await api("GET", "/v1/workers?pool=cpu"))[1]["workers"]) == 2
    new = await api.context.store.register_worker(name="new", boot="b", pool="gpu", capacity=1)
    assert [each["worker"] for each in (await api("GET", "/v1/workers?status=new"))[1]["workers"]] == [new.worker]
    assert (await api("GET", f"/v1/workers/{quote(new.worker)}"))[1]["status"] == "new"
    assert (await api("GET", "/v1/workers/nobody%231"))[0] == 404


async def test_a_cordoned_worker_keeps_its_lives_and_gets_no_more(api: Api) -> None:
    await api.configure()
    [a, b] = await api.workers(2, capacity=5)
    await api("POST", f"/v1/workers/{quote(b)}/cordon")
    for n in range(5):
        assert (await api.create(f"L{n}"))[1]["worker"] == a
    assert (await api.create("L5"))[1]["code"] == "FULL"
    assert (await api("POST", f"/v1/workers/{quote(b)}/uncordon"))[1] == {"worker": b, "mode": "ready"}
    assert (await api.create("L5"))[1]["worker"] == b
    _, worker = await api("GET", f"/v1/workers/{quote(a)}")
    slot = worker["slots"][0]
    assert len(worker["slots"]) == 5 and slot.pop("committed_at_ms") <= worker["at_ms"]
    assert slot == {
        "live_id": "L0",
        "tenant": "default",
        "number": 1,
        "state": "starting",
        "digital_id": "anna",
        "acked": 0,
        "pending": 0,
        "stalled": False,
    }
    troubles = {each["kind"]: (each["count"], each["count_max"]) for each in worker["troubles"]}
    settings = api.context.settings
    assert troubles == {
        "loss": (0, settings.losses_max),
        "crash": (0, settings.crashes_max),
        "stall": (0, settings.stalls_max),
    }
    await api.context.fleet.refresh()
    _, drain = await api("GET", f"/v1/workers/{quote(a)}/drain")
    assert (drain["left"], drain["free_elsewhere"]) == (5, 4), "b has one live"
    await api.context.store.set_worker(worker=a, verb="drain")
    status, problem = await api("POST", f"/v1/workers/{quote(a)}/cordon")
    assert (status, problem["code"]) == (409, "DRAINING")
    assert (await api("POST", "/v1/workers/nobody%231/cordon"))[0] == 404


async def test_slots_of_workers_that_take_nothing_are_not_free(api: Api) -> None:
    """A lost, cordoned or draining Worker has a free slot on paper only: a Pool that shows it as free is scaled too
    late."""
    await api.configure()
    [lost, cordoned, draining, ready] = await api.workers(4, capacity=5)
    for n in range(8):
        assert (await api.create(f"L{n}"))[0] == 201
    [pool] = (await api("GET", "/v1/pools"))[1]["pools"]
    assert (pool["capacity"], pool["load"], pool["free"], pool["barred"]) == (20, 8, 12, {})
    rows = {row["worker"]: row["load"] for row in (await api("GET", "/v1/workers"))[1]["workers"]}
    [beat] = [row["beat"] for row in (await api("GET", "/v1/workers"))[1]["workers"] if row["worker"] == lost]
    await api.context.store.expire_worker(worker=lost, beat=beat)
    await api.context.store.set_worker(worker=cordoned, verb="cordon")
    await api.context.store.set_worker(worker=draining, verb="drain")
    _, pool = await api("GET", "/v1/pools/gpu")
    assert (pool["workers"], pool["placeable"]) == (4, 1)
    assert (pool["capacity"], pool["load"], pool["free"]) == (5, rows[ready], 5 - rows[ready])
    assert pool["barred"] == {
        status: {"workers": 1, "load": rows[worker], "capacity": 5}
        for status, worker in (("lost", lost), ("cordoned", cordoned), ("draining", draining))
    }


async def test_pools_come_from_configuration_and_from_workers(api: Api) -> None:
    await api.workers(2, capacity=5)
    status, pool = await api("GET", "/v1/pools/gpu")
    assert (status, pool["configured"], pool["workers"], pool["capacity"]) == (200, False, 2, 10)
    assert (await api("DELETE", "/v1/pools/gpu"))[0] == 404
    assert (await api("PUT", "/v1/pools/gpu", {"priority": 2, "labels": ["a"]}))[0] == 201
    assert (await api("PUT", "/v1/pools/gpu", {"priority": 3}))[0] == 200
    _, pool = await api("GET", "/v1/pools/gpu")
    assert (pool["configured"], pool["config"]["priority"], pool["config"]["labels"]) == (True, 3, [])
    assert (await api("PUT", "/v1/pools/empty", {}))[0] == 201
    assert [each["name"] for each in (await api("GET", "/v1/pools"))[1]["pools"]] == ["empty", "gpu"]
    assert (await api("DELETE", "/v1/pools/empty"))[0] == 204
    assert (await api("GET", "/v1/pools/empty"))[0] == 404


async def test_what_is_in_use_is_deleted_only_by_force(api: Api) -> None:
    await api.configure()
    await api.workers(1, capacity=5)
    await api.create("L")
    status, problem = await api("DELETE", "/v1/pools/gpu")
    assert (status, problem["code"], problem["workers"], problem["digital_ids"]) == (409, "IN_USE", 1, ["anna"])
    status, problem = await api("DELETE", "/v1/digital-ids/anna")
    assert (status, problem["code"], problem["live_id"]) == (409, "IN_USE", "L")
    await api("POST", "/v1/lives/L/end")
    assert (await api("DELETE", "/v1/digital-ids/anna"))[0] == 204
    assert (await api("DELETE", "/v1/digital-ids/anna"))[0] == 404
    assert (await api("DELETE", "/v1/pools/gpu?force=1"))[0] == 204


async def test_tiers_and_priorities_decide_the_pool(api: Api) -> None:
    for pool, priority in (("slow", 5), ("fast", 1)):
        assert (await api("PUT", f"/v1/pools/{pool}", {"priority": priority}))[0] == 201
    spare = {"pools": [{"pool": "slow"}, {"pool": "fast"}, {"pool": "spare", "tier": 1}]}
    status, problem = await api("PUT", "/v1/digital-ids/anna", spare)
    assert (status, problem["code"], problem["field"]) == (422, "NO_SUCH_POOL", "$.pools[2].pool")
    for pool in ("spare", "slow", "fast"):
        await api.workers(1, capacity=1, pool=pool, name=pool)
    assert (await api("PUT", "/v1/digital-ids/anna", spare))[0] == 201
    went = [(await api.create(f"L{n}"))[1]["worker"].partition("#")[0] for n in range(3)]
    assert went == ["fast0", "slow0", "spare0"]
