"""Stateless, shown: any number of processes on one store, any request to any of them, any of them killed anywhere."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from dhsched import failpoints
from dhsched.client.models.pools import DigitalIdConfig, PoolTier
from dhsched.dispatch.app import open_context
from dhsched.dispatch.config import DIGITAL_IDS
from dhsched.dispatch.recovery.recover import Recovery
from dhsched.dispatch.recovery.silences import Silences
from dhsched.local.process import Process
from dhsched.ownership import items
from dhsched.ownership.invariants import of_state
from dhsched.ownership.steps.place import Create
from dhsched.settings import DispatchSettings
from dhsched.store.raw import read_state
from dhsched.store.steps.redis import RedisStore
from tests.harness.fleet import until, until_so
from tests.harness.replicas import register, replicas
from tests.harness.servers import running_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Http:
    """Just enough of a client: status and document."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, method: str, url: str, json: Any = None, **options: Any) -> tuple[int, Any]:
        async with self._session.request(method, url, json=json, **options) as response:
            return response.status, await response.json(content_type=None) if response.status != 204 else None


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def http() -> AsyncIterator[Http]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield Http(session)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def store() -> AsyncIterator[RedisStore]:
    async with running_server("valkey") as server, await RedisStore.open(server.address) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def four(store: RedisStore) -> AsyncIterator[list[Process]]:
    async with replicas(store.link.address, "d1", "d2", "d3", "d4") as started:
        yield started


async def configure(http: Http, replica: Process, pool: str) -> None:
    """A Pool, and a DigitalID of the same name that lists it."""
    assert (await http("PUT", f"{replica.url}/v1/pools/{pool}", {}))[0] < 300
    assert (await http("PUT", f"{replica.url}/v1/digital-ids/{pool}", {"pools": [{"pool": pool}]}))[0] < 300


async def create(http: Http, replica: Process, digital_id: str, live_id: str) -> tuple[int, Any]:
    return await http("POST", f"{replica.url}/v1/lives", {"digital_id": digital_id, "live_id": live_id})


async def consistent(store: RedisStore) -> None:
    assert of_state(await read_state(store.link, store.keys.cell_name)) == []


async def test_one_live_created_at_once_through_two_has_one_generation(
    store: RedisStore, http: Http, four: list[Process]
) -> None:
    await register(store, 8, capacity=50, pool="same")
    await configure(http, four[0], "same")
    for n in range(10):
        asked = [create(http, four[i % 2], "same", f"same-{n}") for i in range(16)]
        answers = await asyncio.gather(*asked)
        assert Counter(status for status, _ in answers) == {201: 1, 200: 15}
        assert len({(made["worker"], made["epoch"]) for _, made in answers}) == 1
    await consistent(store)


async def test_on_the_last_slot_one_is_placed_and_63_are_told_that_it_is_full(
    store: RedisStore, http: Http, four: list[Process]
) -> None:
    await register(store, 1, capacity=1, pool="last")
    await configure(http, four[0], "last")
    answers = await asyncio.gather(*(create(http, four[i % 2], "last", f"last-{i}") for i in range(64)))
    assert Counter(status for status, _ in answers) == {201: 1, 503: 63}
    for status, problem in answers:
        assert status == 201 or (problem["code"] == "FULL" and "add Workers to Pool last" in problem["detail"])
    await consistent(store)


async def test_a_hundred_workers_of_one_four_replicas_a_hundred_creates(
    store: RedisStore, http: Http, four: list[Process]
) -> None:
    await register(store, 100, capacity=1, pool="ones")
    await configure(http, four[0], "ones")
    answers = await asyncio.gather(*(create(http, four[i % 4], "ones", f"ones-{i}") for i in range(100)))
    assert Counter(status for status, _ in answers) == {201: 100}
    assert len({made["worker"] for _, made in answers}) == 100
    status, problem = await create(http, four[0], "ones", "one-too-many")
    assert (status, problem["code"]) == (503, "FULL")
    await consistent(store)


async def prepare_point(store: RedisStore, http: Http, helper: Process, point: str) -> tuple[str, str, Any]:
    """What must be there before the call of this point, and the call: method, path, body."""
    call, live_id = point.partition(".")[0], "L-" + point.replace(".", "-")
    if call in ("reassign", "end", "push_again", "drop_dead"):
        assert (await create(http, helper, "points", live_id))[0] == 201
    if call in ("push_again", "drop_dead"):
        await store.link.call(
            "RPUSH", store.keys.of("dead", f"default/{live_id}"), items.stored("text", b"poison", False)
        )
        _, letters = await http("GET", f"{helper.url}/v1/lives/{live_id}/dead-letters")
        letter = f"/v1/lives/{live_id}/dead-letters/{letters['items'][0]['id']}"
        return ("POST", f"{letter}/push", None) if call == "push_again" else ("DELETE", letter, None)
    worker = (await register(store, 1, capacity=4, pool="other", name=live_id))[0].replace("#", "%23")
    calls: dict[str, tuple[str, str, Any]] = {
        "create": ("POST", "/v1/lives", {"digital_id": "points", "live_id": live_id}),
        "reassign": ("POST", f"/v1/lives/{live_id}/reassign", {"expected_epoch": 1}),
        "end": ("POST", f"/v1/lives/{live_id}/end", {}),
        "set_worker": ("POST", f"/v1/workers/{worker}/cordon", {}),
        "configure": ("PUT", f"/v1/pools/{live_id}", {"priority": 3}),
    }
    return calls[call]


async def check_point(store: RedisStore, point: str, answers: list[tuple[int, Any]]) -> None:
    """Done once: by the one that was killed or by the retry, never by both, never in part."""
    (status, made), (again, made_again) = answers
    call, after = point.split(".")
    live_id = "L-" + point.replace(".", "-")
    if call == "create":
        assert status == (200 if after == "after" else 201) and again == 200
        assert (made["worker"], made["epoch"]) == (made_again["worker"], made_again["epoch"])
    elif call == "reassign":
        assert (status, again) == (200, 200) and made["epoch"] == made_again["epoch"] == 2
    elif call in ("push_again", "drop_dead"):
        assert status in ((200, 204) if call == "push_again" or after == "before" else (404,)), (point, made)
        live: Any = (await read_state(store.link, store.keys.cell_name)).lives[f"default/{live_id}"]
        assert live.dead == () and live.appended == (1 if call == "push_again" else 0), point
        assert [items.read(each).payload for each in live.pending] == ([b"poison"] if call == "push_again" else [])
    elif call == "configure":
        assert status == (200 if after == "after" else 201) and made["config"]["priority"] == 3
    else:
        assert (status, again) == (200, 200) and made == made_again


SAMPLE = {"create", "reassign"}
"""The calls whose points `make test` tries. Each point costs the start of a process, so the others are for releases."""


@pytest.mark.parametrize("calls", [SAMPLE, pytest.param({*failpoints.CALLS} - SAMPLE, marks=pytest.mark.release)])
async def test_killed_at_every_point_and_retried_elsewhere(
    store: RedisStore, http: Http, four: list[Process], calls: set[str]
) -> None:
    await register(store, 8, capacity=50, pool="points")
    helper = four[0]
    await configure(http, helper, "points")
    points = [point for point in failpoints.POINTS if point.partition(".")[0] in calls]
    names = [f"r{n}={point}" for n, point in enumerate(points)]
    async with replicas(store.link.address, *names, DHSCHED_DISPATCH_RECOVER_S="60") as doomed:
        for replica, point in zip(doomed, points, strict=True):
            method, path, body = await prepare_point(store, http, helper, point)
            headers = {"Idempotency-Key": point}
            with pytest.raises(aiohttp.ClientError):
                await http(method, replica.url + path, body, headers=headers)
            answers = [await http(method, helper.url + path, body, headers=headers) for _ in range(2)]
            await check_point(store, point, answers)
    await consistent(store)


@pytest.mark.parametrize("point", [p for p in failpoints.POINTS if p.partition(".")[0] in failpoints.LOOP_CALLS])
async def test_a_loop_killed_at_every_point_is_carried_on_by_another_replica(point: str) -> None:
    async with (
        running_server("valkey") as server,
        open_context(server.address, DispatchSettings(access="open")) as other,
    ):
        store = other.store
        a, b = await register(store, 2, capacity=4, pool="loop")
        await other.store.records.config.put(DIGITAL_IDS, "anna", DigitalIdConfig(pools=[PoolTier(pool="loop")]))
        for n in range(3):
            create = Create(digital_id="anna", fingerprint="f")
            await store.place(live=f"default/L{n}", operation=f"op-{n}", cause="create", create=create, candidates=[a])
        async with replicas(server.address, f"doomed={point}", DHSCHED_DISPATCH_RECOVER_S="0.05") as [doomed]:
            await store.expire_worker(worker=a, beat=1)
            await until(lambda: doomed.returncode is not None, f"the end of {doomed.name}")
        recovery = Recovery(other, Silences())

        async def owners() -> list[tuple[str | None, int]]:
            await recovery.round()
            return [(live.selected, live.epoch) for live in (await read_state(store.link, "main")).lives.values()]

        found = await until_so(owners, lambda found: all(worker == b for worker, _ in found), f"every live on {b}")
        assert found == [(b, 2)] * 3, "each was moved, and once"
        await consistent(store)
