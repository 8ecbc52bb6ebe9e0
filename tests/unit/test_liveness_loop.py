"""The loops of liveness and reconciliation, with a scripted store: what is expired, said, and read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery import liveness, reconcile
from dhsched.dispatch.recovery.liveness import Liveness, Silence, Watch, next_overdue
from dhsched.dispatch.recovery.reconcile import Reconciliation
from dhsched.dispatch.recovery.safety import SafetyTotals
from dhsched.dispatch.recovery.silences import Silences
from dhsched.errors import StoreUnavailable
from dhsched.ownership import outcomes as o
from dhsched.store.records.workers import Beat

TTL_S = 4.0


class Count:
    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, by: float = 1) -> None:
        self.value += by

    def set(self, value: float) -> None:
        self.value = value


def answering(what: Callable[..., Any]) -> Any:
    async def answer(*given: Any, **more: Any) -> Any:
        found = what(*given, **more)
        if isinstance(found, Exception):
            raise found
        return found

    return answer


class Replica:
    """A replica whose clock, beats and store are the test's."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.beats: dict[str, Beat] = {}
        self.reads = 0
        self.expired: list[tuple[str, int]] = []
        self.expires: Any = o.Expired(2)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.marked: list[str] = []
        self.mark_is_new = True
        self.metrics = SimpleNamespace(
            lost=Count(), braked=Count(), drift=Count(), overshoots=Count(), dual_owners=Count()
        )
        self.safety = SafetyTotals()
        self.silences = Silences()
        self.looked: list[str] = []
        self.lives = ["default/a", "default/b"]
        self.drift: tuple[int, int] | None = None
        self.departing: list[str] = []
        self.cordoned: list[str] = []
        self.terms = SimpleNamespace(due=asyncio.Event(), walked=0)
        self.fleet = SimpleNamespace(term=0, view=SimpleNamespace(workers={}))
        self.found = SimpleNamespace(overshoot=0, dual_owners=())
        patch.setattr(liveness, "blame", answering(lambda *given: False))
        patch.setattr(reconcile, "violations", answering(lambda *given: self.found))
        patch.setattr(reconcile, "cordon", answering(lambda context, worker, *more: self.cordoned.append(worker)))
        context = cast(DispatchContext, self.context())
        self.liveness = Liveness(context, self.silences)
        recovery = cast(Any, SimpleNamespace(look=answering(self.looked.extend)))
        self.reconciliation = Reconciliation(context, recovery)

    def context(self) -> Any:
        def pages(after: str, count: int) -> list[str]:
            return [live for live in self.lives if live > after][:1]

        records = SimpleNamespace(
            workers=SimpleNamespace(
                beats=answering(self.read),
                drift=answering(lambda worker: self.drift),
                departing=answering(lambda worker: self.departing),
            ),
            fleet=SimpleNamespace(
                mark_brake=answering(lambda replica, ms: self.mark_is_new),
                keep_brake_marked=answering(lambda ms: self.marked.append("kept")),
                unmark_brake=answering(lambda: self.mark_is_new),
            ),
            lives=SimpleNamespace(all_names=answering(pages)),
        )
        return SimpleNamespace(
            records=records,
            store=SimpleNamespace(
                expire_worker=answering(self.expire),
                set_worker=answering(lambda worker, verb: o.WorkerSet("ready", True)),
            ),
            loop_time=lambda: self.now,
            settings=SimpleNamespace(worker_ttl_s=TTL_S, departing_max_s=30.0),
            metrics=self.metrics,
            events=SimpleNamespace(say=lambda event, **fields: self.events.append((event, fields))),
            safety=self.safety,
            replica="d1",
            rng=Random(1),
            terms=self.terms,
            fleet=self.fleet,
        )

    def read(self) -> dict[str, Beat]:
        self.reads += 1
        return {**self.beats}

    def expire(self, worker: str, beat: int) -> Any:
        self.expired.append((worker, beat))
        return self.expires

    async def rounds(self, seconds: float) -> None:
        """Do a round every half second of so much time, one at its end included."""
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            await self.liveness.round()

    @property
    def said(self) -> list[str]:
        return [event for event, _ in self.events]


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Replica:
    return Replica(monkeypatch)


def beat(n: int = 1, *, lost: bool = False) -> Beat:
    return Beat(n, lost, "ready")


async def test_a_silent_worker_is_lost_after_its_ttl_and_it_is_said_once(replica: Replica) -> None:
    replica.beats = {"w#1": beat(3), "v#1": beat(1)}
    await replica.liveness.round()
    for n in range(8):
        replica.beats["v#1"] = beat(n + 2)
        assert replica.expired == []
        await replica.rounds(0.5)
    assert replica.expired == [("w#1", 3)] and replica.metrics.lost.value == 1
    assert replica.events == [("worker_lost", {"worker": "w#1", "beat": 3, "silent_s": 4.0, "lives": 2})]


async def test_a_worker_that_has_reported_meanwhile_is_not_said_to_be_lost(replica: Replica) -> None:
    replica.beats, replica.expires = {"w#1": beat()}, o.Alive(2)
    await replica.liveness.round()
    await replica.rounds(TTL_S)
    assert replica.expired == [("w#1", 1)] and replica.events == [] and replica.metrics.lost.value == 0


async def test_after_a_gap_in_the_reading_every_wait_starts_anew(replica: Replica) -> None:
    replica.beats = {"w#1": beat()}
    await replica.liveness.round()
    await replica.rounds(TTL_S - 0.5)
    replica.now += 10
    await replica.liveness.round()
    await replica.rounds(TTL_S - 0.5)
    assert replica.expired == []
    await replica.rounds(0.5)
    assert replica.expired == [("w#1", 1)]


async def test_after_a_report_that_the_store_refused_every_wait_starts_anew(replica: Replica) -> None:
    replica.beats = {"w#1": beat()}
    await replica.liveness.round()
    await replica.rounds(TTL_S - 0.5)
    replica.silences.refused_at = replica.now
    await replica.rounds(0.5)
    assert replica.expired == [("w#1", 1)], "the refusal was before the last reading"
    replica.expired.clear()
    replica.silences.refused_at = replica.now + 0.1
    await replica.rounds(TTL_S)
    assert replica.expired == []
    await replica.rounds(0.5)
    assert replica.expired == [("w#1", 1)]


async def test_a_store_that_fails_in_the_middle_starts_every_wait_anew(replica: Replica) -> None:
    replica.beats, replica.expires = {"w#1": beat()}, StoreUnavailable("away", unknown=True)
    await replica.liveness.round()
    with pytest.raises(StoreUnavailable):
        await replica.rounds(TTL_S)
    replica.expires = o.Expired(0)
    replica.expired.clear()
    await replica.rounds(TTL_S)
    assert replica.expired == []
    await replica.rounds(0.5)
    assert replica.expired == [("w#1", 1)]


async def test_a_worker_that_hung_up_is_overdue_sooner_unless_it_has_reported_since(replica: Replica) -> None:
    replica.beats = {"w#1": beat(3), "v#1": beat(5)}
    replica.silences.hung_up = {"w#1": 3, "v#1": 4, "gone#1": 1}
    await replica.liveness.round()
    assert replica.silences.hung_up == {"w#1": 3}, "v has reported through another replica, the third is gone"
    await replica.rounds(0.5)
    assert replica.expired == []
    await replica.rounds(0.5)
    assert replica.expired == [("w#1", 3)]


async def test_when_many_are_silent_at_once_the_brake_is_on_and_said_once(replica: Replica) -> None:
    replica.beats = {f"w{n}#1": beat() for n in range(4)}
    await replica.liveness.round()
    await replica.rounds(TTL_S)
    assert replica.expired == [] and replica.silences.overdue == frozenset(replica.beats)
    assert replica.events == [("brake_on", {"silent": 4, "workers": 4})] and replica.metrics.braked.value == 4
    await replica.rounds(1.0)
    assert replica.said == ["brake_on"] and replica.marked == ["kept", "kept"]
    replica.beats = {worker: beat(2) for worker in replica.beats}
    await replica.rounds(0.5)
    assert replica.said == ["brake_on", "brake_off"] and replica.silences.overdue == frozenset()
    await replica.rounds(0.5)
    assert len(replica.events) == 2 and replica.metrics.braked.value == 0


async def test_a_brake_that_another_replica_has_said_is_not_said_again(replica: Replica) -> None:
    replica.mark_is_new = False
    replica.beats = {f"w{n}#1": beat() for n in range(4)}
    await replica.liveness.round()
    await replica.rounds(TTL_S)
    replica.beats = {}
    await replica.rounds(0.5)
    assert replica.events == []


def test_when_the_next_one_that_hung_up_is_overdue() -> None:
    watch = Watch(100.0, {"w#1": Silence(3, 99.5), "v#1": Silence(5, 99.8), "u#1": Silence(1, 98.0)})
    assert next_overdue(watch, {"w#1": 3, "v#1": 5}) == 100.5
    assert next_overdue(watch, {"v#1": 5}) == 100.8
    assert next_overdue(watch, {"v#1": 4}) is None, "it has reported since"
    assert next_overdue(watch, {"u#1": 1}) is None, "the last reading has judged it"
    assert next_overdue(Watch(99.0, {"u#1": Silence(1, 98.0)}), {"u#1": 1}) is None
    assert next_overdue(watch, {"gone#1": 1}) is None and next_overdue(Watch(), {"w#1": 3}) is None


async def test_a_worker_that_hangs_up_is_read_at_once_and_again_when_it_is_overdue(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "TOLD_S", 0.001)
    monkeypatch.setattr(liveness, "HUNG_UP_S", 0.05)
    loop = asyncio.get_running_loop()
    replica.liveness._context.loop_time = loop.time  # type: ignore[method-assign]
    replica.beats = {"w#1": beat(3)}
    following = asyncio.ensure_future(replica.liveness.follow())
    await asyncio.sleep(0.01)
    assert replica.reads == 0
    replica.silences.hang_up("w#1", 3)
    await asyncio.wait_for(following, 60)
    assert replica.expired[0] == ("w#1", 3) and replica.reads >= 2 and not replica.silences.told.is_set()


async def test_every_live_is_looked_at_once_for_a_new_term(replica: Replica) -> None:
    await replica.reconciliation.round()
    assert replica.looked == []
    replica.fleet.term = 2
    following = asyncio.ensure_future(replica.reconciliation.follow())
    await asyncio.sleep(0)
    assert replica.looked == []
    replica.terms.due.set()
    await asyncio.wait_for(following, 60)
    assert replica.looked == ["default/a", "default/b"] and replica.terms.walked == 2
    assert not replica.terms.due.is_set()
    await replica.reconciliation.round()
    assert len(replica.looked) == 2


async def test_lost_workers_are_reaped(replica: Replica) -> None:
    replica.beats = {"w#1": beat(), "v#1": beat(lost=True)}
    await replica.reconciliation.round()
    assert replica.events == [("worker_reaped", {"worker": "v#1"})]


async def test_what_a_worker_must_not_have_is_counted_and_drift_is_said_when_it_changes(replica: Replica) -> None:
    replica.fleet.view.workers = {"w#1": SimpleNamespace(barred="")}
    replica.drift, replica.found = (3, 2), SimpleNamespace(overshoot=2, dual_owners=("a@1",))
    await replica.reconciliation.round()
    await replica.reconciliation.round()
    assert replica.events == [("drift", {"worker": "w#1", "load": 3, "slots": 2})]
    counted = replica.metrics
    assert (counted.drift.value, counted.overshoots.value, counted.dual_owners.value) == (2, 4, 2)
    replica.drift = (4, 2)
    await replica.reconciliation.round()
    assert len(replica.events) == 2


async def test_a_worker_whose_runtimes_do_not_stop_is_cordoned(replica: Replica) -> None:
    row = SimpleNamespace(barred="")
    replica.fleet.view.workers = {"w#1": row}
    replica.departing = ["default/a@1"]
    for _ in range(30):
        await replica.reconciliation.round()
        replica.now += 1
    assert replica.cordoned == []
    await replica.reconciliation.round()
    assert replica.cordoned == ["w#1"]
    row.barred = "cordoned"
    await replica.reconciliation.round()
    assert replica.cordoned == ["w#1"]
    replica.departing, row.barred = ["default/b@1"], ""
    await replica.reconciliation.round()
    assert replica.cordoned == ["w#1"], "another one has only begun to depart"
