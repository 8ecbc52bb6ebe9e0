"""Limits of tenants: exact on lives, over all replicas, and told in numbers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dhsched.store.link.address import Address
from dhsched.store.records.tenants import FRESH_MS, TenantCounts
from tests.harness.fleet import until
from tests.harness.keyed import keyed
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving

ACME, OTHER = {"X-Tenant": "acme"}, {"X-Tenant": "other"}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        await api.workers(2, capacity=50)
        yield api


async def create(api: Api, live_id: str, tenant: dict[str, str]) -> tuple[int, Any]:
    return await api("POST", "/v1/lives", {"live_id": live_id, "digital_id": "anna"}, headers=tenant)


async def test_quota_limits_of_tenants_are_put_listed_and_deleted(api: Api) -> None:
    assert (await api("PUT", "/v1/tenants/acme", {"lives_max": 2}))[0] == 201
    assert (await api("PUT", "/v1/tenants/acme", {"lives_max": 3}))[0] == 200
    assert (await api("PUT", "/v1/tenants/*", {}))[0] == 201
    listed = (await api("GET", "/v1/tenants"))[1]["tenants"]
    assert [(each["name"], each["config"]["lives_max"]) for each in listed] == [("*", 0), ("acme", 3)]
    assert (await api("GET", "/v1/tenants/acme"))[1]["config"]["lives_max"] == 3
    assert (await api("DELETE", "/v1/tenants/acme"))[0] == 204
    assert (await api("DELETE", "/v1/tenants/acme"))[0] == 404
    assert (await api("GET", "/v1/tenants/acme"))[0] == 404
    for wrong in ({"lives_max": -1}, {"lives_max": 1.5}, {"more": 1}):
        assert (await api("PUT", "/v1/tenants/acme", wrong))[0] == 400
    assert (await api("PUT", "/v1/tenants/a*", {}))[0] == 400


async def test_quota_of_lives_is_refused_with_its_numbers_and_freed_by_an_end(api: Api) -> None:
    await api("PUT", "/v1/tenants/acme", {"lives_max": 2})
    assert [(await create(api, each, ACME))[0] for each in ("L", "M")] == [201, 201]
    status, problem = await create(api, "N", ACME)
    assert (status, problem["code"]) == (429, "QUOTA")
    numbers = {name: problem[name] for name in ("tenant", "quota", "used", "limit")}
    assert numbers == {"tenant": "acme", "quota": "lives_max", "used": 2, "limit": 2}
    assert (await create(api, "M", ACME))[0] == 200  # A repeated create adds nothing.
    assert (await create(api, "N", OTHER))[0] == 201
    await api("POST", "/v1/lives/L/end", {}, headers=ACME)
    assert [(await create(api, each, ACME))[0] for each in ("N", "O")] == [201, 429]


async def test_quota_of_every_other_tenant_gives_way_to_a_record(api: Api) -> None:
    await api("PUT", "/v1/tenants/*", {"lives_max": 1})
    await api("PUT", "/v1/tenants/acme", {"lives_max": 2})
    assert [(await create(api, each, ACME))[0] for each in "LMN"] == [201, 201, 429]
    assert [(await create(api, each, OTHER))[0] for each in "LM"] == [201, 429]
    await api("PUT", "/v1/tenants/acme", {})  # A record without limits is no limit, whatever `*` says.
    assert (await create(api, "N", ACME))[0] == 201


async def test_quota_of_lives_is_exact_for_creates_at_once_over_two_replicas(server: Address) -> None:
    async with serving(server) as one, serving(server, name="d2") as two:
        await one.configure()
        await one.workers(2, capacity=50)
        await one("PUT", "/v1/tenants/acme", {"lives_max": 7})
        await two.context.quota_reports.round()
        made = await asyncio.gather(*(create((one, two)[n % 2], f"L{n}", ACME) for n in range(40)))
        assert sorted(status for status, _ in made) == [201] * 7 + [429] * 33
        assert {problem["used"] for status, problem in made if status == 429} == {7}


async def test_quota_of_nobody_costs_no_call_more(api: Api) -> None:
    await api("PUT", "/v1/tenants/acme", {"lives_max": 2})
    for tenant in (ACME, OTHER):
        before = api.context.store.link.calls
        assert (await create(api, "L", tenant))[0] == 201
        assert api.context.store.link.calls - before == 1


async def test_quota_of_waiting_creates(server: Address) -> None:
    async with serving(server, wait_retry_s=30) as api:
        await api.configure()
        await api.workers(1, capacity=1)
        await api("PUT", "/v1/tenants/acme", {"waiting_max": 1})
        assert (await create(api, "L", OTHER))[0] == 201
        body = {"live_id": "M", "digital_id": "anna"}
        waiting = asyncio.create_task(api("POST", "/v1/lives?wait_s=60", body, headers=ACME))
        await until(lambda: len(api.context.create_queue) == 1, "a create that waits")
        status, problem = await api("POST", "/v1/lives?wait_s=60", {**body, "live_id": "N"}, headers=ACME)
        assert (status, problem["code"], problem["quota"]) == (429, "QUOTA", "waiting_max")
        assert (await create(api, "N", ACME))[1]["code"] == "FULL"  # It does not wait.
        waiting.cancel()


async def test_quota_of_streams_is_over_all_controllers(server: Address) -> None:
    async with keyed(server) as one, keyed(server, 2) as two:
        admin, app = await one.role("admin"), await one.role("app", tenant="acme")
        assert (await one.ask("PUT", "/v1/tenants/acme", admin, {"streams_max": 1}))[0] == 201
        reports = [each.infer_context.quota_reports for each in (one, two)]
        for each in reports:
            await each.round()
        async with one.infer.ws_connect("/v1/stream", headers=app):
            for each in reports:
                await each.round()
            for k in (one, two):
                async with k.infer.get("/v1/stream", headers=app) as refused:
                    problem = await refused.json(content_type=None)
                assert (refused.status, problem["code"], problem["quota"]) == (429, "QUOTA", "streams_max")
        await until(lambda: one.infer_context.streams == 0, "the end of the stream")
        for each in reports:
            await each.round()
        async with two.infer.ws_connect("/v1/stream", headers=app):
            pass


async def test_quota_of_requests_is_over_all_keys_of_the_tenant_and_all_roles(server: Address) -> None:
    async with keyed(server) as k:
        admin = await k.role("admin")
        apps = [await k.role("app", tenant="acme") for _ in range(2)]
        other = await k.role("app", tenant="other")
        assert (await k.ask("PUT", "/v1/tenants/acme", admin, {"rate_per_s": 0.01}))[0] == 201
        assert (await k.ask("GET", "/v1/lives", apps[0]))[0] == 200
        status, problem = await k.ask("GET", "/v1/lives", apps[1])
        assert (status, problem["code"], problem["quota"], problem["limit"]) == (429, "QUOTA", "rate_per_s", 0.01)
        assert (await k.ask("GET", "/v1/lives", other))[0] == 200
        assert (await k.ask("GET", "/v1/lives", {**admin, "X-Tenant": "acme"}))[0] == 200
        # The controller has not read the limit yet; then it has.
        reports = k.infer_context.quota_reports
        await reports.round()
        pushed = [await k.ask("POST", "/v1/lives/L/text", apps[0], {"text": "a"}, at="infer") for _ in range(2)]
        assert [status for status, _ in pushed] == [404, 429]


async def test_quota_report_of_a_replica_that_stopped_is_forgotten(server: Address) -> None:
    async with serving(server) as api:
        tenants = api.context.store.records.tenants
        counts = {"acme": TenantCounts(1, 2, 3)}
        assert (await tenants.report("a", counts))[1] == []
        assert (await tenants.report("b", {}))[1] == [counts]
        assert (await tenants.report("a", {}))[1] == [{}]
        link, key = api.context.store.link, api.context.store.keys.of("counts")
        assert 0 < await link.call("PTTL", key) <= FRESH_MS
        await link.call("HSET", key, "a", "1 acme 1 2 3")  # Of long ago.
        assert (await tenants.report("b", {}))[1] == []
        assert await link.call("HKEYS", key) == [b"b"]
