"""Troubles of a Worker that are noted in a scripted store: when it is cordoned, and what is said, once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery.blame import blame, blame_of_name
from dhsched.errors import StoreUnavailable
from dhsched.ownership import outcomes as o


class Replica:
    """A replica with two Workers in one Pool, `w#1` and `v#1`."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.sets: Any = o.WorkerSet("cordoned", False)
        self.cordons: list[str] = []
        self.away = False
        rows = {name: SimpleNamespace(pool="gpu", barred="") for name in ("w#1", "v#1")}
        self.rows = rows
        workers = SimpleNamespace(trouble=self.trouble)
        self.context = cast(
            DispatchContext,
            SimpleNamespace(
                settings=SimpleNamespace(
                    losses_max=1, stalls_max=2, crashes_max=3, cordon_share=0.5, blame_window_s=60.0
                ),
                fleet=SimpleNamespace(view=SimpleNamespace(workers=rows)),
                store=SimpleNamespace(set_worker=self.set_worker, records=SimpleNamespace(workers=workers)),
                events=SimpleNamespace(say=lambda event, **fields: self.events.append((event, fields))),
            ),
        )

    async def trouble(self, name: str, member: str, window_ms: int) -> tuple[bool, list[str]]:
        if self.away:
            raise StoreUnavailable("away", unknown=True)
        new = bool(member) and member not in self.noted
        if new:
            self.noted.append(member)
        return new, [*self.noted]

    async def set_worker(self, worker: str, verb: str) -> Any:
        self.cordons.append(worker)
        return self.sets


@pytest.fixture
def replica() -> Replica:
    return Replica()


async def test_one_trouble_too_many_cordons_the_worker_once(replica: Replica) -> None:
    assert not await blame(replica.context, "w#1", "stall", "default/a")
    assert await blame(replica.context, "w#1", "stall", "default/a"), "this one was there before"
    assert not await blame(replica.context, "w#1", "stall", "default/b")
    assert replica.cordons == []
    await blame(replica.context, "w#1", "stall", "default/c")
    assert replica.cordons == ["w#1"]
    [(event, said)] = replica.events
    assert event == "worker_cordoned" and (said["count"], said["count_max"], said["trouble"]) == (3, 2, "stall")
    assert said["undo"] == "dhsched worker uncordon w#1"
    await blame(replica.context, "w#1", "stall", "default/d")
    assert replica.cordons == ["w#1"] and len(replica.events) == 1, "it is cordoned"


async def test_a_new_boot_of_a_blamed_name_is_cordoned_too(replica: Replica) -> None:
    replica.noted = [f"loss w#1 {n}" for n in range(2)] + ["cordon w#0"]
    await blame_of_name(replica.context, "w#1")
    assert replica.cordons == ["w#1"] and [event for event, _ in replica.events] == ["worker_cordoned"]


async def test_when_too_many_are_out_the_worker_is_only_said_to_be_blamed(replica: Replica) -> None:
    replica.rows["v#1"].barred = "lost"
    for what in "abc":
        await blame(replica.context, "w#1", "loss", what)
    assert replica.cordons == []
    [(event, said)] = replica.events
    assert event == "worker_blamed" and (said["out"], said["workers"]) == (1, 2)


async def test_a_worker_that_is_gone_is_not_said_to_be_cordoned(replica: Replica) -> None:
    replica.sets = o.WorkerSet("draining", False)
    for what in "ab":
        await blame(replica.context, "w#1", "loss", what)
    assert replica.cordons == ["w#1"] and replica.events == []


async def test_a_store_that_is_away_blames_nobody(replica: Replica) -> None:
    replica.away = True
    assert not await blame(replica.context, "w#1", "loss", "a")
    await blame_of_name(replica.context, "w#1")
    assert replica.cordons == [] and replica.events == []
