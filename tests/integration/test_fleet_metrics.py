"""What an operator's alerts stand on: Pools in figures, safety counters, phases of handoffs."""

from __future__ import annotations

from pathlib import Path

from dhsched.dispatch.recovery.reconcile import Reconciliation
from dhsched.dispatch.recovery.recover import Recovery
from dhsched.dispatch.recovery.safety import violations
from tests.harness.fleet import Record, fleet, until, until_so
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving


def value(api: Api, name: str, **labels: str) -> float | None:
    return api.context.service.registry.get_sample_value(name, labels)


async def test_pools_in_figures() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        a, _ = await api.workers(2, capacity=4)
        for n in range(3):
            assert (await api.create(f"L{n}"))[0] == 201
        await api("POST", f"/v1/workers/{a.replace('#', '%23')}/cordon")
        await api.context.fleet.refresh()
        held = (await api("GET", "/v1/workers?status=ready"))[1]["workers"][0]["load"]
        assert value(api, "dhsched_pool_capacity_slots", pool="gpu") == 4
        assert value(api, "dhsched_pool_free_slots", pool="gpu") == 4 - held
        assert value(api, "dhsched_pool_waterline", pool="gpu") == held / 4
        assert value(api, "dhsched_pool_workers", pool="gpu", status="ready") == 1
        assert value(api, "dhsched_pool_workers", pool="gpu", status="cordoned") == 1


async def test_what_must_not_be_is_found_and_counted() -> None:
    """The steps do not let it happen, so it is written into the store by hand."""
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        [worker, other] = await api.workers(2, capacity=4)
        assert (await api.create("L"))[0] == 201
        context = api.context
        owner = (await api("GET", "/v1/lives/L"))[1]["worker"]
        thief = other if owner == worker else worker
        for each in (worker, other):
            assert not await violations(context.records, each)
        keys = context.store.keys
        await context.store.link.call("HSET", keys.of("slots", thief), "default/L@1", "running")
        found = await violations(context.records, thief)
        assert found.dual_owners == ("default/L@1",) and found.overshoot == 0
        for n in range(5):
            await context.store.link.call("HSET", keys.of("slots", thief), f"default/x{n}@1", "departing")
        await Reconciliation(context, Recovery(context, api.replica.silences)).round()
        assert value(api, "dhsched_overshoots_total") == 2
        assert value(api, "dhsched_dual_owners_total") == 1
        assert value(api, "dhsched_drift_total") == 1


async def test_the_phases_of_a_handoff_are_measured(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f, serving(f.address) as api:
        await f.start_worker(record := Record(), "w1")
        await until(lambda: api.context.fleet.view.workers, "the Worker in the view")
        assert (await api("POST", "/v1/lives", {"digital_id": "demo", "live_id": "L"}))[0] == 201
        await f.push("L", "one")
        await until(lambda: record.consumed, "the item")
        one_round, _ = api.replica.loops()["handoffs"]

        async def measured() -> bool:
            await one_round()
            return value(api, "dhsched_handoff_seconds_count", cause="create", phase="first_ack") == 1

        await until_so(measured, bool, "the phases of the create")
        assert value(api, "dhsched_handoff_seconds_count", cause="create", phase="claim") == 1
