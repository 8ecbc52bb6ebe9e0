"""What the loops say and whom they blame, on a real store: each thing once, although several replicas run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dhsched.client.models.pools import DigitalIdConfig, PoolConfig, PoolTier
from dhsched.dispatch.app import open_context
from dhsched.dispatch.config import DIGITAL_IDS, POOLS
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery.blame import blame_of_name, forgive
from dhsched.dispatch.recovery.liveness import Liveness
from dhsched.dispatch.recovery.reconcile import Reconciliation
from dhsched.dispatch.recovery.recover import Recovery
from dhsched.dispatch.recovery.silences import Silences
from dhsched.ownership import outcomes as o
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from tests.harness.clock import Clock
from tests.harness.replicas import place, register

REPLICAS = 4


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
async def replicas(server: Address) -> AsyncIterator[list[DispatchContext]]:
    """Replicas whose loops run only when the test says so."""
    quiet: dict[str, Any] = {"refresh_min_s": 50, "refresh_max_s": 60, "worker_ttl_s": 0.5}
    limits: dict[str, Any] = {"losses_max": 2, "crashes_max": 2, "stalls_max": 2, "departing_max_s": 1}
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(
                open_context(server, DispatchSettings(name=f"d{n}", access="open", **quiet, **limits))
            )
            for n in range(REPLICAS)
        ]
        await opened[0].store.link.call("FLUSHALL")
        await opened[0].store.records.config.put(POOLS, "gpu", PoolConfig())
        await opened[0].store.records.config.put(DIGITAL_IDS, "anna", DigitalIdConfig(pools=[PoolTier(pool="gpu")]))
        await refresh(opened)
        yield opened


async def refresh(replicas: list[DispatchContext]) -> None:
    for each in replicas:
        await each.fleet.refresh(full=True)


async def said(replicas: list[DispatchContext], *kinds: str) -> list[tuple[str, str, Any]]:
    """Events of these kinds, or all: kind, what they are about, numbers."""
    await asyncio.gather(*(each.events.written() for each in replicas))
    records = replicas[0].records
    found = [each.event for each in await records.events.last(1_000)]
    return [(each.kind, each.live or each.worker, each.numbers) for each in found if not kinds or each.kind in kinds]


async def test_many_replicas_that_scan_at_once_place_each_live_once_and_say_it_once(
    replicas: list[DispatchContext], clock: Clock
) -> None:
    a, b = await register(replicas[0].store, 2, capacity=8)
    await refresh(replicas)
    lives = [f"L{n}" for n in range(8)]
    for live in lives:
        await place(replicas[0].store, live, a)
    watching = [Liveness(each, Silences()) for each in replicas]
    for _ in range(7):
        await replicas[0].store.report(worker=b, boot="boot-gpu-w-1")
        await asyncio.gather(*(each.round() for each in watching))
        clock.pass_s(0.1)
    await asyncio.gather(*(Recovery(each, Silences()).round() for each in replicas))
    await asyncio.gather(*(Recovery(each, Silences()).round() for each in replicas))
    found: list[Any] = [await replicas[0].records.lives.get(f"default/{live}") for live in lives]
    assert [(each.selected, each.epoch) for each in found] == [(b, 2)] * 8
    assert Counter(kind for kind, _, _ in await said(replicas)) == {"worker_lost": 1, "live_recovered": 8}
    [(_, worker, numbers)] = await said(replicas, "worker_lost")
    assert worker == a and numbers["lives"] == 8 and numbers["silent_s"] >= 0.5


async def test_a_name_that_is_lost_too_often_is_cordoned_also_under_its_next_boot(
    replicas: list[DispatchContext], clock: Clock
) -> None:
    one = replicas[0]
    a, b = await register(one.store, 2, capacity=4)
    await refresh(replicas)
    for beat in range(1, 4):
        watch = [Liveness(each, Silences()) for each in replicas]
        for _ in range(7):
            await one.store.report(worker=b, boot="boot-gpu-w-1")
            await asyncio.gather(*(each.round() for each in watch))
            clock.pass_s(0.1)
        assert len(await said(replicas, "worker_lost")) == beat
        await one.store.report(worker=a, boot="boot-gpu-w-0")
    [(_, worker, numbers)] = await said(replicas, "worker_cordoned")
    assert worker == a and numbers["reason"] == "3 times lost, more than 2"
    assert numbers["undo"] == f"dhsched worker uncordon {a}" and numbers["count"] == 3
    again = await one.store.register_worker(name="w0", boot="later", pool="gpu", capacity=4, replaces=a)
    await one.fleet.refresh(full=True)
    await blame_of_name(one, again.worker)
    assert (await one.records.workers.beats())[again.worker].mode == "cordoned"
    await one.store.set_worker(worker=again.worker, verb="uncordon")
    await forgive(one, again.worker)
    await blame_of_name(one, again.worker)
    assert (await one.records.workers.beats())[again.worker].mode == "ready", "who was uncordoned starts anew"


async def test_runtimes_of_many_lives_that_end_cordon_their_worker_but_one_live_that_crashes_does_not(
    replicas: list[DispatchContext],
) -> None:
    one = replicas[0]
    workers = await register(one.store, 4, capacity=8)
    await refresh(replicas)
    await place(one.store, "loops", workers[0])
    been = [workers[0]]
    for epoch in range(1, 7):
        me: dict[str, Any] = {"live": "default/loops", "worker": been[-1], "epoch": epoch}
        await one.store.append_input(live="default/loops", kind="text", payload=b"", request=f"r{epoch}")
        await one.store.pull(**me, after=0, controller="c1")
        await one.store.release_input(**me, pull_no=1, after=0, credit=1)
        # It acks before it crashes: otherwise it would not be placed again at once.
        assert isinstance(await one.store.ack_input(**me, n=epoch), o.Acked)
        await one.store.depart(worker=been[-1], live="default/loops", number=epoch)
        await asyncio.gather(*(Recovery(each, Silences()).round() for each in replicas))
        record: Any = await one.records.lives.get("default/loops")
        assert record.epoch == epoch + 1
        been.append(record.selected)
    assert been[1] == workers[0], "first it comes back to where its slot is"
    assert been[2] != workers[0], "a second time it is tried elsewhere"
    assert await said(replicas, "worker_cordoned", "worker_blamed") == []
    for n in range(4):
        await place(one.store, f"L{n}", workers[0])
        await one.store.depart(worker=workers[0], live=f"default/L{n}", number=1)
    await asyncio.gather(*(Recovery(each, Silences()).round() for each in replicas))
    [(_, worker, numbers)] = await said(replicas, "worker_cordoned")
    assert worker == workers[0] and "lives whose runtime ended on it, more than 2" in numbers["reason"]
    assert (await one.records.workers.beats())[workers[0]].mode == "cordoned"


async def test_a_fault_of_everybody_cordons_one_and_says_so_of_the_others(replicas: list[DispatchContext]) -> None:
    one = replicas[0]
    workers = await register(one.store, 3, capacity=16)
    for turn, worker in enumerate(workers):
        await refresh(replicas)
        for n in range(4):
            await place(one.store, f"L{turn}-{n}", worker)
            await one.store.depart(worker=worker, live=f"default/L{turn}-{n}", number=1)
        await asyncio.gather(*(Recovery(each, Silences()).round() for each in replicas))
    assert [worker for _, worker, _ in await said(replicas, "worker_cordoned")] == workers[:1]
    blamed = await said(replicas, "worker_blamed")
    assert [worker for _, worker, _ in blamed] == workers[1:]
    assert blamed[0][2]["out"] == 1 and blamed[0][2]["workers"] == 3


async def test_a_runtime_that_does_not_stop_cordons_its_worker(replicas: list[DispatchContext], clock: Clock) -> None:
    one = replicas[0]
    a, b = await register(one.store, 2, capacity=4)
    await refresh(replicas)
    await place(one.store, "L", a)
    await one.store.place(live="default/L", operation="op", cause="reassign", expected=1, candidates=[b])
    loops = [Reconciliation(each, Recovery(each, Silences())) for each in replicas]
    await asyncio.gather(*(each.round() for each in loops))
    assert await said(replicas, "worker_cordoned") == []
    clock.pass_s(1.1)
    await asyncio.gather(*(each.round() for each in loops))
    [(_, worker, numbers)] = await said(replicas, "worker_cordoned")
    assert worker == a and numbers["departing"] == 1 and "default/L@1" in numbers["reason"]
    found = await one.records.workers.get(a)
    assert found is not None and found[1] == {"default/L@1": "departing"}, "time frees no slot"


async def test_the_brake_is_said_once_on_and_once_off(replicas: list[DispatchContext], clock: Clock) -> None:
    one = replicas[0]
    workers = await register(one.store, 4, capacity=4)
    watching = [Liveness(each, Silences()) for each in replicas]
    for _ in range(8):
        await asyncio.gather(*(each.round() for each in watching))
        clock.pass_s(0.1)
    assert [kind for kind, _, _ in await said(replicas)] == ["brake_on"]
    for n, worker in enumerate(workers):
        await one.store.report(worker=worker, boot=f"boot-gpu-w-{n}")
    await asyncio.gather(*(each.round() for each in watching))
    assert [kind for kind, _, _ in await said(replicas)] == ["brake_on", "brake_off"]


async def test_a_new_term_is_said_once_and_so_is_drift_while_it_stays_the_same(
    replicas: list[DispatchContext],
) -> None:
    one = replicas[0]
    (a,) = await register(one.store, 1, capacity=4)
    await refresh(replicas)
    loops = [Reconciliation(each, Recovery(each, Silences())) for each in replicas]
    await one.store.link.call("HSET", one.store.keys.of("worker", a), "load", 3)
    for _ in range(3):
        await loops[0].round()
    assert [(kind, numbers) for kind, _, numbers in await said(replicas)] == [("drift", {"load": 3, "slots": 0})]
    await one.store.link.call("HSET", one.store.keys.of("worker", a), "load", 0)
    await asyncio.gather(*(each.terms.begin(1, "a test") for each in replicas))
    await asyncio.gather(*(each.round() for each in loops))
    assert [numbers["term"] for _, _, numbers in await said(replicas, "new_term")] == [2]
