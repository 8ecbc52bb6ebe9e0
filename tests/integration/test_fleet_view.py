"""The view that a replica places by: exact after every refresh, corrected in between, honest about its age."""

from collections.abc import AsyncIterator

import pytest

from dhsched.client.models.pools import DigitalIdConfig, PoolConfig, PoolTier
from dhsched.dispatch.config import DIGITAL_IDS, POOLS
from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.errors import BadSetting
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from dhsched.store.records import Records
from dhsched.store.steps.redis import RedisStore
from tests.harness.fleet import until
from tests.harness.replicas import register
from tests.harness.servers import empty_server

QUIET = DispatchSettings(refresh_min_s=50, refresh_max_s=60)


class Bench:
    """A store, its reads and a view that refreshes only when asked."""

    def __init__(self, store: RedisStore, records: Records) -> None:
        self.store = store
        self.records = records
        self.fleet = Fleet(records, QUIET)

    async def place(self, live: str, worker: str, *, pools: tuple[str, ...] = ()) -> o.PlaceOutcome:
        sent_rev = self.fleet.view.rev
        outcome = await self.store.place(
            live=f"default/{live}",
            operation=f"op-{live}",
            cause="create",
            create=Create(digital_id="anna", fingerprint="f"),
            candidates=[worker],
            pools=pools,
        )
        self.fleet.learn(outcome, sent_rev=sent_rev)
        return outcome

    def load(self, worker: str) -> int:
        """What the view believes, own assignments included."""
        seen = self.fleet.view.workers[worker]
        return seen.load + seen.own


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with (
        empty_server("valkey") as server,
        await RedisStore.open(server.address) as store,
        await Records.open(server.address) as records,
    ):
        yield Bench(store, records)


async def test_snapshots_read_what_changed_page_by_page(server: Address) -> None:
    async with await RedisStore.open(server) as store, await Records.open(server) as records:
        workers = await register(store, 25, capacity=4)
        whole = await records.fleet.snapshot(page=4)
        assert {row.worker for row in whole.workers} == set(workers)
        assert whole == await records.fleet.snapshot()
        await store.set_worker(worker=workers[3], verb="cordon")
        changed = await records.fleet.snapshot(whole.rev)
        assert [(row.worker, row.barred) for row in changed.workers] == [(workers[3], "cordoned")]
        assert (await records.fleet.snapshot(changed.rev)).workers == ()


async def test_a_page_never_splits_a_revision(bench: Bench) -> None:
    """One step may change several Workers under one revision: a page that cut between them would lose some."""
    [a, b, *_] = await register(bench.store, 6, capacity=4)
    await bench.place("L", a)
    before = (await bench.records.fleet.snapshot()).rev
    await bench.store.place(live="default/L", operation="op-2", cause="reassign", expected=1, candidates=[b])
    for page in (1, 2, 3):
        rows = (await bench.records.fleet.snapshot(before, page=page)).workers
        assert {(row.worker, row.load) for row in rows} == {(a, 1), (b, 1)}


async def test_own_commits_count_at_once_and_are_not_counted_twice(bench: Bench) -> None:
    [a, b] = await register(bench.store, 2, capacity=10)
    await bench.fleet.refresh(full=True)
    for n in range(3):
        await bench.place(f"L{n}", a)
    assert (bench.load(a), bench.load(b)) == (3, 0)
    await bench.fleet.refresh()
    seen = bench.fleet.view.workers[a]
    assert (seen.load, seen.own, bench.load(b)) == (3, 0, 0)


async def test_a_refusal_corrects_the_view(bench: Bench) -> None:
    [a, b, c] = await register(bench.store, 3, capacity=1)
    await bench.fleet.refresh(full=True)
    other = Fleet(bench.records, QUIET)
    await other.refresh(full=True)
    await bench.place("L1", a)  # By this replica; the other one does not know.
    await bench.store.set_worker(worker=c, verb="cordon")
    bench.fleet, mine = other, bench.fleet
    outcome = await bench.place("L2", a, pools=("gpu",))
    assert isinstance(outcome, o.Committed) and outcome.generation.worker == b
    assert other.view.workers[a].believed_full()
    await bench.place("L3", c)
    assert other.view.workers[c].barred == "cordoned" and mine.view.workers[c].barred == ""


async def test_a_new_term_makes_a_new_view(bench: Bench) -> None:
    await register(bench.store, 2, capacity=10)
    await bench.fleet.refresh(full=True)
    before = bench.fleet.view
    await bench.store.new_term(term=1)
    await bench.fleet.refresh()
    assert bench.fleet.view is not before and bench.fleet.term == 2 and len(bench.fleet.view.workers) == 2


async def test_a_store_that_lost_history_makes_a_new_view(bench: Bench) -> None:
    await register(bench.store, 5, capacity=10)
    await bench.fleet.refresh(full=True)
    await bench.store.link.call("FLUSHALL")
    await register(bench.store, 1, capacity=10, name="other")
    await bench.fleet.refresh()
    assert list(bench.fleet.view.workers) == ["other0#1"]


async def test_workers_of_a_store_that_was_emptied_leave_the_view(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has its old name, and its numbers have jumped above all that the view has seen."""
    monkeypatch.setattr(bench.store.homes, "_draw", lambda: 10**6)
    fleet = Fleet(bench.records, QUIET, store=bench.store)
    await register(bench.store, 5, capacity=10)
    await fleet.refresh(full=True)
    before = fleet.view.rev
    await bench.store.link.call("FLUSHALL")
    [other] = await register(bench.store, 1, capacity=10, name="other")
    await fleet.refresh()
    assert fleet.view.rev > before and list(fleet.view.workers) == [other]


async def test_configuration_reaches_the_view_with_the_next_refresh(bench: Bench) -> None:
    await bench.fleet.refresh(full=True)
    await bench.store.records.config.put(POOLS, "gpu", PoolConfig(priority=7))
    await bench.store.records.config.put(DIGITAL_IDS, "anna", DigitalIdConfig([PoolTier("gpu", 2)]))
    await bench.fleet.refresh()
    assert bench.fleet.view.pools["gpu"].pool.priority == 7
    request = await bench.fleet.request("anna")
    assert request is not None and request.pools == (("gpu", 2),)
    assert await bench.fleet.request("nobody") is None


async def test_the_keeper_refreshes_and_the_view_knows_its_age(bench: Bench) -> None:
    fleet = Fleet(bench.records, DispatchSettings(refresh_min_s=0.01, refresh_max_s=0.02))
    assert fleet.age_s == float("inf")
    await fleet.start()
    try:
        [a] = await register(bench.store, 1, capacity=10)
        await until(lambda: a in fleet.view.workers and not fleet.view.workers[a].barred, "the Worker in the view")
        assert fleet.free_slots() == 10
        await until(lambda: fleet.age_s < 1, "a view that is younger than a second")
    finally:
        await fleet.stop()


async def test_workers_that_vanished_leave_with_a_full_snapshot(bench: Bench) -> None:
    [a, b] = await register(bench.store, 2, capacity=10)
    await bench.fleet.refresh(full=True)
    await bench.store.set_worker(worker=a, verb="exit")
    await bench.fleet.refresh(full=True)
    assert list(bench.fleet.view.workers) == [b]


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(BadSetting, match="bottom-tier"):
        Fleet(None, DispatchSettings(policy="no-such"))  # type: ignore[arg-type]
