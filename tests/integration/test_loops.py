"""The loops of a replica on a real store: lost Workers, recovery, waiting for a free slot, a store that went back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dhsched.client.models.pools import DigitalIdConfig, PoolConfig, PoolTier
from dhsched.dispatch.app import open_context
from dhsched.dispatch.config import DIGITAL_IDS, POOLS
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.moves.cutover import Cutovers, MoveInProgress
from dhsched.dispatch.moves.drain import Draining, ask_for_drain
from dhsched.dispatch.moves.plan import DrainNotes
from dhsched.dispatch.recovery.liveness import Liveness
from dhsched.dispatch.recovery.reconcile import Reconciliation
from dhsched.dispatch.recovery.recover import Recovery
from dhsched.dispatch.recovery.silences import Silences
from dhsched.errors import StoreRefused
from dhsched.ownership import invariants
from dhsched.ownership import outcomes as o
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from dhsched.store.raw import read_state
from dhsched.types import slot_tag
from tests.harness.clock import Clock
from tests.harness.fleet import until_so
from tests.harness.replicas import place, register

QUIET = DispatchSettings(access="open", refresh_min_s=50, refresh_max_s=60)


@pytest.fixture
async def replica(server: Address) -> AsyncIterator[DispatchContext]:
    """A replica whose loops run only when the test says so."""
    async with open_context(server, QUIET) as context:
        await context.store.link.call("FLUSHALL")
        await context.store.records.config.put(POOLS, "gpu", PoolConfig())
        await context.store.records.config.put(DIGITAL_IDS, "anna", DigitalIdConfig(pools=[PoolTier(pool="gpu")]))
        await context.fleet.refresh(full=True)
        yield context
        assert invariants.of_state(await read_state(context.store.link, "main")) == []


async def test_a_store_that_refuses_to_write_costs_no_worker(server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers our reads and takes nobody's report: when it writes again, the Workers need a moment, too."""
    settings = DispatchSettings(access="open", refresh_min_s=50, refresh_max_s=60, worker_ttl_s=0.5)
    clock = Clock(monkeypatch)
    async with open_context(server, settings) as replica:
        await replica.store.link.call("FLUSHALL")
        [worker] = await register(replica.store, 1, capacity=4)
        liveness, refused = Liveness(replica, Silences()), 0
        await replica.store.link.call("CONFIG", "SET", "min-replicas-to-write", "1")
        for _ in range(8):
            with contextlib.suppress(StoreRefused):
                await liveness.round()
                clock.pass_s(0.1)
                continue
            refused += 1
        await replica.store.link.call("CONFIG", "SET", "min-replicas-to-write", "0")
        await liveness.round()
        assert refused == 1, "after one refusal every wait starts anew"
        assert not (await replica.records.workers.beats())[worker].lost


async def test_a_worker_that_closes_its_link_is_lost_without_a_round_of_the_loop(replica: DispatchContext) -> None:
    silent, lively = await register(replica.store, 2, capacity=4)
    silences = Silences()
    liveness = Liveness(replica, silences)
    following = asyncio.create_task(liveness.follow())
    for worker in (silent, lively):
        silences.hang_up(worker, (await replica.records.workers.beats())[worker].beat)
    await replica.store.report(worker=lively, boot="boot-gpu-w-1")
    await following
    beats = await replica.records.workers.beats()
    assert (beats[silent].lost, beats[lively].lost) == (True, False)


async def test_a_held_move_is_tried_again_while_another_one_is_being_held(
    replica: DispatchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    cutovers, slow, tried = Cutovers(replica, Silences()), asyncio.Event(), list[str]()
    cutovers.prepared("b#2", [slot_tag("default/held", 2), slot_tag("default/new", 2)])
    held = next(iter(cutovers._moves.values()))
    held.source, held.checked_at = "a#1", float("inf")

    async def hold(move: MoveInProgress) -> bool:
        await slow.wait()
        return False

    async def commit(move: MoveInProgress) -> o.PlaceOutcome:
        tried.append(move.live)
        if len(tried) == 3:
            slow.set()
        return o.NotYet()

    monkeypatch.setattr(cutovers, "_hold", hold)
    monkeypatch.setattr(cutovers, "_place", commit)
    await asyncio.wait_for(cutovers.round(), 30)
    assert len(tried) >= 3 and {*tried} == {"default/held"}
    assert [move.live for move in cutovers._moves.values()] == ["default/held"], "the other one is over"


async def test_a_replica_that_has_not_heard_of_a_drain_s_end_moves_nothing(replica: DispatchContext) -> None:
    a, _ = await register(replica.store, 2, capacity=4)
    for live in ("L1", "L2"):
        await place(replica.store, live, a)
    await replica.store.set_worker(worker=a, verb="drain")
    await replica.fleet.refresh(full=True)
    await replica.store.set_worker(worker=a, verb="undrain")
    notes = DrainNotes()
    draining = Draining(replica, Cutovers(replica, Silences()), notes, lambda _worker, _cell: None)
    await draining.round()
    records = [await replica.records.lives.get(f"default/{live}") for live in ("L1", "L2")]
    assert [(record.selected, record.move) for record in records if record] == [(a, None)] * 2
    assert notes.queue.get(a, []) == []


async def test_a_drain_begins_without_waiting_for_a_round(replica: DispatchContext) -> None:
    a, b = await register(replica.store, 2, capacity=4)
    await place(replica.store, "L1", a)
    await replica.fleet.refresh(full=True)
    draining = Draining(replica, Cutovers(replica, Silences()), DrainNotes(), lambda _worker, _cell: None)
    beginning = asyncio.create_task(draining.begin())
    await ask_for_drain(replica, a)
    await asyncio.wait_for(beginning, 30)
    record = await replica.records.lives.get("default/L1")
    assert record and record.move and record.move.target == b
    await replica.fleet.refresh()
    assert not draining._unread.is_set(), "a drain whose lives were read is left to the rounds"


async def owner(replica: DispatchContext, live: str) -> tuple[str, int]:
    record: Any = await replica.records.lives.get(f"default/{live}")
    return record.selected, record.epoch


async def test_the_lives_of_a_lost_worker_are_placed_anew_and_only_once(replica: DispatchContext) -> None:
    a, b = await register(replica.store, 2, capacity=4)
    await replica.fleet.refresh(full=True)
    for live in ("L1", "L2", "L3"):
        await place(replica.store, live, a)
    beat = (await replica.records.workers.beats())[a].beat
    assert await replica.store.expire_worker(worker=a, beat=beat) == o.Expired(3)
    recovery = Recovery(replica, Silences())
    await recovery.round()
    await recovery.round()
    for live in ("L1", "L2", "L3"):
        assert await owner(replica, live) == (b, 2)


async def test_a_live_that_becomes_due_is_looked_at_without_waiting_for_a_round(replica: DispatchContext) -> None:
    """A lost Worker, then one that has a free slot again: whoever follows the hints needs no rounds."""
    a, b = await register(replica.store, 2, capacity=4)
    await replica.store.set_worker(worker=b, verb="cordon")
    await replica.fleet.refresh(full=True)
    await place(replica.store, "L1", a)

    async def follow() -> None:
        recovery = Recovery(replica, Silences())
        while True:
            await recovery.follow()

    following = asyncio.create_task(follow())
    try:
        await until_subscribed(replica, "due")
        await replica.store.expire_worker(worker=a, beat=(await replica.records.workers.beats())[a].beat)
        await until_so(lambda: read_state(replica.store.link, "main"), lambda found: found.waiting, "L1 in the queue")
        await replica.store.set_worker(worker=b, verb="uncordon")
        await until_so(lambda: owner(replica, "L1"), lambda found: found == (b, 2), "L1 on the other Worker")
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def until_subscribed(replica: DispatchContext, channel: str) -> None:
    store = replica.store

    async def subscribers() -> int:
        _, count = await store.link.call("PUBSUB", "SHARDNUMSUB", store.keys.of(channel))
        return int(count)

    await until_so(subscribers, lambda found: found == 1, f"a subscription to {channel}")


async def test_without_room_they_wait_and_a_new_worker_takes_them(replica: DispatchContext) -> None:
    (a,) = await register(replica.store, 1, capacity=2)
    await place(replica.store, "L1", a)
    await place(replica.store, "L2", a)
    await replica.store.expire_worker(worker=a, beat=(await replica.records.workers.beats())[a].beat)
    await Recovery(replica, Silences()).round()
    waiting = (await read_state(replica.store.link, "main")).waiting
    assert set(waiting["gpu"]) == {"default/L1", "default/L2"}
    (b,) = await register(replica.store, 1, capacity=4, name="new")
    await Recovery(replica, Silences()).round()
    assert {await owner(replica, live) for live in ("L1", "L2")} == {(b, 2)}
    assert (await read_state(replica.store.link, "main")).waiting == {}


async def test_a_live_whose_runtime_died_comes_back_to_the_same_worker_even_when_it_is_full(
    replica: DispatchContext,
) -> None:
    (a,) = await register(replica.store, 1, capacity=1)
    await place(replica.store, "L1", a)
    await replica.store.depart(worker=a, live="default/L1", number=1)
    await Recovery(replica, Silences()).round()
    assert await owner(replica, "L1") == (a, 2)


async def test_a_new_term_gives_every_live_a_generation_above_it(
    replica: DispatchContext,
) -> None:
    (a,) = await register(replica.store, 1, capacity=4)
    await place(replica.store, "L1", a)
    await replica.store.pull(live="default/L1", worker=a, epoch=1, after=0, controller="c1")
    await replica.fleet.refresh()
    assert isinstance(await replica.terms.begin(1, "a test"), o.NewTerm)
    reconciliation = Reconciliation(replica, Recovery(replica, Silences()))
    await reconciliation.round()
    assert replica.fleet.term == 2
    assert isinstance(await replica.store.look(live="default/L1"), o.Later), "it was placed in the same round"
    stale = await replica.store.release_input(live="default/L1", worker=a, epoch=1, pull_no=1, after=0, credit=1)
    assert isinstance(stale, o.Stale)
    worker, epoch = await owner(replica, "L1")
    floor = (await read_state(replica.store.link, "main")).cell.epoch_floor
    assert worker == a and epoch > floor > 0
