"""Limits of tenants: exact on lives, over all replicas, and told in numbers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dhsched.store.link.address import Address
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
        await two.context.fleet.refresh()
        made = await asyncio.gather(*(create((one, two)[n % 2], f"L{n}", ACME) for n in range(40)))
        assert sorted(status for status, _ in made) == [201] * 7 + [429] * 33
        assert {problem["used"] for status, problem in made if status == 429} == {7}


async def test_quota_of_nobody_costs_no_call_more(api: Api) -> None:
    await api("PUT", "/v1/tenants/acme", {"lives_max": 2})
    for tenant in (ACME, OTHER):
        before = api.context.store.link.calls
        assert (await create(api, "L", tenant))[0] == 201
        assert api.context.store.link.calls - before == 1
