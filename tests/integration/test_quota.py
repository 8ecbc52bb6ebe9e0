"""Limits of tenants: exact on lives, over all replicas, and told in numbers."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dhsched.client import Client
from dhsched.dispatch.loops import running
from dhsched.infer.app import open_infer
from dhsched.infer.settings import InferSettings
from dhsched.store.link.address import Address
from dhsched.store.records import tenants as tenant_records
from dhsched.store.records.tenants import FORGET_MS, FRESH_MS, PENDING_MS, TenantCounts
from tests.harness.fleet import PATIENCE_S, Record, until, until_so
from tests.harness.keyed import Keyed, bearer, keyed
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
        await api.context.audit.written()
        before = api.context.store.link.calls
        assert (await create(api, "L", tenant))[0] == 201
        await api.context.audit.written()
        assert api.context.store.link.calls - before == 2  # The create, and its entry in the audit trail.


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
        await until(lambda: one.infer_context.connections.streams == 0, "the end of the stream")
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


async def test_a_request_that_dispatch_passes_on_counts_once(server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    async with keyed(server) as k:
        admin = await k.role("admin")
        await k.announce()
        key = await k.key("app", tenant="acme", rate_per_s=2)
        app = bearer(await k.token(key))  # One of the two requests at Dispatch.
        there = k.infer_context.service.gate
        assert there is not None
        stopped = time.monotonic()
        for gate in (k.gate, there):
            monkeypatch.setattr(gate, "_monotonic", lambda: stopped)

        async def push() -> int:
            return (await k.ask("POST", "/v1/lives/L/text", app, {"text": "a"}))[0]

        assert [await push(), await push()] == [404, 404], "the key's rate at the controller, and nothing at Dispatch"
        assert (await k.ask("GET", "/v1/lives", app))[0] == 200
        assert (await k.ask("GET", "/v1/lives", app))[0] == 429, "that was the second one at Dispatch"
        assert await push() == 429, "the controller's answer"

        other = await k.role("app", tenant="other")
        assert (await k.ask("PUT", "/v1/tenants/other", admin, {"rate_per_s": 0.01}))[0] == 201
        await k.infer_context.quota_reports.round()
        statuses = [(await k.ask("POST", "/v1/lives/L/text", other, {"text": "a"}))[0] for _ in range(2)]
        assert statuses == [404, 429], "the tenant's rate, at the controller"
        assert (await k.ask("GET", "/v1/lives", other))[0] == 200


async def measure(*replicas: Keyed) -> None:
    """Measure pending input at the first replica, now, and let all controllers hear of it."""
    store = replicas[0].api.context.store
    await store.link.call("HDEL", store.keys.of("usage"), "measured_at")
    await replicas[0].api.context.pending_input.round()
    for each in replicas:
        await each.infer_context.quota_reports.round()


async def push(k: Keyed, live_id: str, app: dict[str, str], **body: Any) -> tuple[int, Any]:
    return await k.ask("POST", f"/v1/lives/{live_id}/text", app, body, at="infer")


async def test_quota_of_pending_bytes_refuses_pushes_until_workers_have_acked(server: Address, tmp_path: Path) -> None:
    may_ack = asyncio.Event()
    record = Record(before_ack=lambda *_: may_ack.wait())
    large = 16_000 * "x"
    async with keyed(server) as one, keyed(server, 2) as two:
        admin = await one.role("admin")
        acme, other = await one.role("app", tenant="acme"), await one.role("app", tenant="other")
        await one.configure(admin)
        await one.announce()
        assert (await one.ask("PUT", "/v1/tenants/acme", admin, {"pending_bytes_max": 30_000}))[0] == 201
        key = await one.key("worker", names="gpu-1")
        async with one.worker(tmp_path, record, key=key, capacity=5):
            for live_id, app in (("L", acme), ("M", acme), ("L", other)):
                body = {"digital_id": "anna", "live_id": live_id}
                assert (await one.ask("POST", "/v1/lives?wait_s=20", app, body))[0] == 201
            await measure(one, two)
            # Each is below the limit, both together are over it.
            assert [(await push(one, each, acme, text=large))[0] for each in "LM"] == [200, 200]
            assert (await push(one, "L", other, text=large))[0] == 200
            assert (await push(two, "L", acme, text="not measured yet"))[0] == 200
            await measure(one, two)
            for k in (one, two):
                status, problem = await push(k, "M", acme, text="a")
                assert (status, problem["code"], problem["tenant"]) == (429, "QUOTA", "acme")
                assert (problem["quota"], problem["limit"]) == ("pending_bytes_max", 30_000)
                assert 32_000 < problem["used"] < 40_000
                assert (await push(k, "L", other, text=large))[0] == 200
                async with k.infer.ws_connect("/v1/lives/M/stream?producer=p", headers=acme) as socket:
                    await socket.send_json([{"n": 1, "text": "a"}, {"token": "b"}])
                    answers: list[Any] = []
                    while len(answers) < 2:
                        answers += await socket.receive_json(timeout=PATIENCE_S)
                assert [each["problem"]["quota"] for each in answers] == 2 * ["pending_bytes_max"]
            usage = (await one.ask("GET", "/v1/tenants/acme/usage", acme))[1]
            assert usage["pending_bytes"] == problem["used"] and usage["pending_measured_at_ms"] > 0
            assert "pending_bytes" not in (await one.ask("GET", "/v1/tenants/other/usage", other))[1]
            async with two.infer.get("/metrics", headers=await two.role("metrics")) as metrics:
                assert f'dhsched_tenant_pending_bytes{{tenant="acme"}} {float(problem["used"])}' in await metrics.text()
            may_ack.set()
            await until(lambda: len([each for each in record.consumed if each.live == "acme/L"]) == 2, "acked input")
            while (await push(two, "M", acme, text="again"))[0] != 200:
                await measure(one, two)
            assert (await one.ask("GET", "/v1/tenants/acme/usage", acme))[1]["pending_bytes"] < 30_000


async def test_quota_of_pending_bytes_never_refuses_an_interrupt(server: Address) -> None:
    async with keyed(server) as k:
        admin, app = await k.role("admin"), await k.role("app", tenant="acme")
        await k.configure(admin)
        await k.api.workers(1, capacity=5)
        await k.ask("PUT", "/v1/tenants/*", admin, {"pending_bytes_max": 1_000})
        for live_id in "LM":
            await k.ask("POST", "/v1/lives", app, {"live_id": live_id, "digital_id": "anna"})
            assert (await push(k, live_id, app, text=5_000 * "x"))[0] == 200
        await measure(k)
        assert (await push(k, "L", app, text="a"))[0] == 429
        assert (await push(k, "L", app, kind="interrupt"))[0] == 200
        async with k.infer.ws_connect("/v1/lives/M/stream?producer=p", headers=app) as socket:
            await socket.send_json([{"n": 1, "kind": "interrupt"}])
            assert (await socket.receive_json(timeout=PATIENCE_S))[0]["seq"] == 2
        await measure(k)
        assert (await push(k, "L", app, text="a"))[0] == 200  # The interrupts have dropped what was pending.


async def test_quota_of_pending_bytes_holds_up_a_client_and_loses_nothing(server: Address) -> None:
    async with keyed(server) as k:
        admin, app = await k.role("admin"), await k.role("app")
        await k.configure(admin)
        await k.api.workers(1, capacity=5)
        await k.ask("PUT", "/v1/tenants/default", admin, {"pending_bytes_max": 1_000})
        await k.ask("POST", "/v1/lives", app, {"live_id": "L", "digital_id": "anna"})
        urls = [str(each.make_url("/")).rstrip("/") for each in (k.api.client, k.infer)]
        async with Client(*urls, token=app["Authorization"].split()[1]) as client, client.stream("L") as stream:
            await stream.push(5_000 * "x")
            await measure(k)
            pushing = asyncio.create_task(stream.push("held up"))
            await asyncio.wait([pushing], timeout=0.3)
            assert not pushing.done()
            assert (await push(k, "L", app, kind="interrupt"))[0] == 200
            await measure(k)
            assert (await asyncio.wait_for(pushing, PATIENCE_S)).seq == 3


async def test_quota_of_pending_bytes_is_measured_in_pages_and_turns(
    server: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_records, "MEASURE_LIVES", 3)
    async with serving(server) as one, serving(server, name="d2") as two:
        await one.configure()
        await one.workers(2, capacity=50)
        link, keys = one.context.store.link, one.context.store.keys
        records = one.context.store.records.tenants
        sizes: Counter[str] = Counter()
        for tenant, lives in {"a": 10, "a-b": 2, "a.b": 4, "a0": 7}.items():
            for n in range(lives):
                assert (await create(one, f"L{n:02}", {"X-Tenant": tenant}))[0] == 201
                if n % 3 != 1:
                    key = keys.of("input", f"{tenant}/L{n:02}")
                    await link.call("RPUSH", key, *["x" * 100 * (n + 1)] * (n + 1))
                    sizes[tenant] += await link.call("MEMORY", "USAGE", key, "SAMPLES", 0)

        async def measured(api: Api, *, turn: bool = True) -> dict[str, int]:
            if turn:
                await link.call("HDEL", keys.of("usage"), "measured_at")
            await link.call("DEL", keys.of("pending"))
            await two.context.quota_reports.round()
            await api.context.pending_input.round()
            return (await records.pending()).bytes

        assert await measured(one) == {}  # No tenant has such a limit: nothing is measured.
        assert await link.call("HGET", keys.of("usage"), "measured_at") is None
        for tenant in ("a", "a.b"):
            await one("PUT", f"/v1/tenants/{tenant}", {"pending_bytes_max": 10**9})
        calls = link.calls
        assert await measured(one) == {"a": sizes["a"], "a.b": sizes["a.b"]}
        assert link.calls - calls >= 14 / 3
        with monkeypatch.context() as patched:
            patched.setattr(tenant_records, "MEASURE_TURN_MS", 10**9)
            assert await measured(two, turn=False) == {}  # The other replica has just measured.
        with monkeypatch.context() as patched:
            patched.setattr(tenant_records, "MEASURE_TENANTS", 1)
            assert await measured(two) == {"a": sizes["a"], "a.b": sizes["a.b"]}
        with monkeypatch.context() as patched:
            patched.setattr(tenant_records, "MEASURE_LIVES", 1000)
            patched.setattr(tenant_records, "MEASURE_BYTES", 1)  # A page ends at the first live with input.
            assert await measured(two) == {"a": sizes["a"], "a.b": sizes["a.b"]}
        await one("PUT", "/v1/tenants/*", {"pending_bytes_max": 10**9})
        await one("PUT", "/v1/tenants/a.b", {})
        assert await measured(two) == {each: sizes[each] for each in ("a", "a-b", "a0")}
        assert 0 < await link.call("PTTL", keys.of("pending")) <= PENDING_MS
        with monkeypatch.context() as patched:
            patched.setattr(tenant_records, "PENDING_TENANTS", 1)
            assert await measured(two) == {"a": sizes["a"]}


async def test_quota_report_of_a_replica_that_stopped_is_forgotten(server: Address) -> None:
    async with serving(server) as api:
        tenants = api.context.store.records.tenants
        counts = {"acme": TenantCounts(1, 2, 3)}
        assert (await tenants.report("a", counts)).others == []
        assert (await tenants.report("b", {})).others == [counts]
        assert (await tenants.report("a", {})).others == [{}]
        link, key = api.context.store.link, api.context.store.keys.of("counts")
        assert 0 < await link.call("PTTL", key) <= FORGET_MS
        now = await api.context.store.records.server.now_ms()
        await link.call("HSET", key, "a", f"{now - FRESH_MS - 1} 0 acme 1 2 3")
        assert (await tenants.report("b", {})).others == []
        assert await link.call("HLEN", key) == 2  # Not told any more, but its batches are still known.
        await link.call("HSET", key, "a", f"{now - FORGET_MS - 1} 0 acme 1 2 3")
        assert (await tenants.report("b", {})).others == []
        assert await link.call("HKEYS", key) == [b"b"]


async def test_quota_usage_adds_a_batch_of_items_once(server: Address) -> None:
    async with serving(server) as api:
        tenants = api.context.store.records.tenants
        for _ in range(3):
            await tenants.report("a", {}, batch=1, items={"acme": 5, "other": 1})
        await tenants.report("b", {}, batch=1, items={"acme": 10})
        await tenants.report("a", {}, batch=2, items={"acme": 100})
        await tenants.report("a", {}, batch=2)
        assert [(await tenants.usage(each)).items for each in ("acme", "other", "nobody")] == [115, 1, 0]


async def test_quota_usage_meters_lives_by_tenant_in_turns_and_pages(
    server: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_records, "METER_TENANTS", 2)
    async with serving(server) as api:
        await api.configure()
        await api.workers(2, capacity=50)
        for tenant, lives in {"a": 1, "a-b": 2, "a.b": 1, "a0": 3, "b": 1}.items():
            for n in range(lives):
                assert (await create(api, f"L{n}", {"X-Tenant": tenant}))[0] == 201
        assert (await create(api, "M", {"X-Tenant": "a"}))[0] == 201
        await api("POST", "/v1/lives/L0/end", {}, headers={"X-Tenant": "a"})
        await api("POST", "/v1/lives/L0/end", {}, headers={"X-Tenant": "b"})
        link, key = api.context.store.link, api.context.store.keys.of("usage")
        metering = api.context.metering

        async def metered(ago_ms: int) -> dict[str, int]:
            """What is added to each tenant when the last metering was so long ago."""
            now = await api.context.store.records.server.now_ms()
            await link.call("DEL", key)
            await link.call("HSET", key, "metered_at", now - ago_ms)
            await metering.round()
            found = {
                each: (await api.context.records.tenants.usage(each)).live_ms for each in ("a", "a-b", "a.b", "a0", "b")
            }
            return {each: live_ms for each, live_ms in found.items() if live_ms}

        with monkeypatch.context() as patched:
            patched.setattr(tenant_records, "METER_TURN_MS", 10**9)
            assert await metered(10**6) == {}  # Another replica has had its turn.
        assert await metered(-(10**6)) == {}  # The clock of another server.
        found = await metered(600_000)
        assert found == {each: 60_000 * lives for each, lives in {"a": 1, "a-b": 2, "a.b": 1, "a0": 3}.items()}
        found = await metered(20_000)
        assert found["a"] >= 20_000 and found["a0"] == 3 * found["a"]
        assert 'dhsched_tenant_live_seconds_total{tenant="a0"}' in await (await api.client.get("/metrics")).text()
        await link.call("DEL", key)
        await metering.round()
        assert (await api.context.records.tenants.usage("a0")).live_ms == 0  # The first metering has nothing before it.


async def test_quota_usage_is_shown_to_the_tenant_and_counts_items_of_posts_and_streams(server: Address) -> None:
    async with keyed(server) as k:
        admin, app = await k.role("admin"), await k.role("app", tenant="acme")
        await k.configure(admin)
        await k.api.workers(1, capacity=5)
        await k.ask("PUT", "/v1/tenants/acme", admin, {"lives_max": 7})
        assert (await k.ask("POST", "/v1/lives", app, {"live_id": "L", "digital_id": "anna"}))[0] == 201
        for text in ("a", "b", "b"):
            body = {"text": text, "request_id": f"r-{text}"}  # The last one is a repetition: no item.
            assert (await k.ask("POST", "/v1/lives/L/text", app, body, at="infer"))[0] == 200
        async with k.infer.ws_connect("/v1/lives/L/stream?producer=p", headers=app) as socket:
            await socket.send_json([{"n": n, "text": "c"} for n in (1, 2, 3)])
            answers: list[Any] = []
            while len(answers) < 3:
                answers += await socket.receive_json(timeout=PATIENCE_S)
        for _ in range(2):
            await k.infer_context.quota_reports.round()
        status, usage = await k.ask("GET", "/v1/tenants/acme/usage", app)
        assert status == 200 and usage == {
            "tenant": "acme",
            "lives": 1,
            "live_seconds": 0,
            "items": 5,
            "limits": {"lives_max": 7, "streams_max": 0, "waiting_max": 0, "rate_per_s": 0, "pending_bytes_max": 0},
        }
        assert (await k.ask("GET", "/v1/tenants/other/usage", app))[0] == 403
        assert (await k.ask("GET", "/v1/tenants/other/usage", admin))[1]["items"] == 0
        async with k.infer.get("/metrics", headers=await k.role("metrics")) as metrics:
            assert 'dhsched_tenant_items_total{tenant="acme"} 5.0' in await metrics.text()


async def test_quota_limits_and_usage_go_by_the_loops_of_each_role(server: Address) -> None:
    async with serving(server) as one, serving(server, name="d2") as two:
        quotas = two.context.service.quotas
        loops = two.replica.loops()
        async with running({name: loops[name] for name in ("quotas", "metering", "pending input")}, rng=Random(1)):
            assert (await one("PUT", "/v1/tenants/acme", {"lives_max": 7}))[0] == 201
            await until(lambda: quotas.limits_of("acme").lives_max == 7, "the limit at the other replica")
            assert (await one("PUT", "/v1/tenants/b", {"pending_bytes_max": 7}))[0] == 201

            async def pending_is_measured() -> bool:
                return bool((await one.context.records.tenants.pending()).at_ms)

            await until_so(pending_is_measured, bool, "a measurement of pending input")
    async with open_infer(InferSettings(name="i1", access="open", store=server.url())) as infer:
        assert infer.context.service.quotas.limits_of("acme").lives_max == 7
        stop = asyncio.Event()
        stop.set()
        infer.context.metrics.usage.items["acme"] += 3
        await infer.announce_until("http://127.0.0.1:1", stop)
        assert (await infer.context.records.tenants.usage("acme")).items == 3, "what was left when it stopped"
