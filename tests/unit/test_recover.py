"""One recovery with a scripted store: what is committed, on whom first, and which events say so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.dispatch.commit import Attempt, Intent
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery import recover as recovering
from dhsched.dispatch.recovery.recover import Recovery
from dhsched.dispatch.recovery.silences import Silences
from dhsched.errors import StoreRefused
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import dead_letter, stored
from dhsched.ownership.outcomes import Need
from dhsched.placement import Choice, PlacementRequest
from dhsched.store.records.lives import BeforeRecovery
from dhsched.types import Generation
from dhsched.web import Problem

LIVE = "default/a"
BEFORE = BeforeRecovery((), 0, suspect=False, poisoned=0, lost_at_ms=0, forgot=False)
COMMITTED = o.Committed(Generation("other#1", 5), 1, 1)
CHOICE = cast(Choice, SimpleNamespace(pools=("gpu", "spare")))


def work(need: Need = "lost", tries: int = 1) -> o.Recover:
    return o.Recover(4, need, "own#1", "anna", 0, tries)


class Replica:
    """A recovery loop whose store, fleet and commit are the test's."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.before = BEFORE
        self.outcome: o.PlaceOutcome = COMMITTED
        self.looked: Any = o.Wake()
        self.unplaceable = ""
        self.blamed_before = False
        self.no_pool = ""
        self.poison = (0, b"")
        self.intents: list[Intent] = []
        self.asked: list[PlacementRequest] = []
        self.blamed: list[tuple[str, str]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        patch.setattr(recovering, "commit", self.commit)
        patch.setattr(recovering, "choose_candidates", self.choose)
        patch.setattr(recovering, "blame", self.blame)
        self.silences = Silences()
        self.recovery = Recovery(cast(DispatchContext, self.context()), self.silences)

    def context(self) -> Any:
        def answering(what: Callable[..., Any]) -> Any:
            async def answer(*given: Any, **more: Any) -> Any:
                return what(*given, **more)

            return answer

        lives = SimpleNamespace(
            before_recovery=answering(lambda live, worker: self.before),
            get=answering(lambda live: SimpleNamespace(epoch=9)),  # The live has moved on since `look`.
            poison=answering(lambda live: self.poison),
            due=answering(lambda most: [f"default/{n}" for n in range(3)]),
        )
        request = PlacementRequest("anna", (("gpu", 0),), avoid=frozenset({"sick#1"}))
        fleet = SimpleNamespace(
            unplaceable=answering(lambda digital_id: self.unplaceable), request=answering(lambda digital_id: request)
        )
        return SimpleNamespace(
            records=SimpleNamespace(lives=lives),
            fleet=fleet,
            store=SimpleNamespace(look_soon=answering(lambda lives: [self.looked] * len(lives))),
            metrics=SimpleNamespace(looks=SimpleNamespace(labels=lambda name: SimpleNamespace(inc=lambda: None))),
            events=SimpleNamespace(say=lambda event, **fields: self.events.append((event, fields))),
            operation=lambda: "op-1",
            rng=Random(1),
        )

    async def commit(self, context: Any, intent: Intent) -> Attempt:
        self.intents.append(intent)
        return Attempt(intent, self.outcome)

    def choose(self, context: Any, request: PlacementRequest) -> Any:
        self.asked.append(request)
        if self.no_pool:
            raise Problem("NO_ELIGIBLE_POOL", self.no_pool)
        return CHOICE

    async def blame(self, context: Any, worker: str, trouble: str, live: str) -> bool:
        self.blamed.append((worker, trouble))
        return self.blamed_before

    def answer_with(self, look_soon: Callable[[list[str]], Any]) -> None:
        """Let the store answer looks as this function does."""
        cast(Any, self.recovery._context.store).look_soon = look_soon

    async def recover(self, work: o.Recover) -> o.PlaceOutcome:
        return await self.recovery.recover(LIVE, work)


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Replica:
    return Replica(monkeypatch)


async def test_it_replaces_the_generation_that_was_looked_at_and_no_later_one(replica: Replica) -> None:
    await replica.recover(work())
    [intent] = replica.intents
    assert (intent.live, intent.cause, intent.expected, intent.holder) == (LIVE, "recover", 4, "own#1")
    assert intent.choice is CHOICE and intent.operation == "op-1"


async def test_a_lost_worker_is_the_last_to_be_asked(replica: Replica) -> None:
    replica.silences.overdue = frozenset({"silent#1"})
    await replica.recover(work("lost"))
    [asked] = replica.asked
    assert (asked.first, asked.last, asked.avoid) == (None, "own#1", frozenset({"sick#1", "silent#1"}))
    assert replica.blamed == [], "it was blamed when it was called lost"


@pytest.mark.parametrize("need, trouble", [("vacant", [("own#1", "crash")]), ("floor", [])])
async def test_a_healthy_worker_is_the_first_to_be_asked(
    replica: Replica, need: Need, trouble: list[tuple[str, str]]
) -> None:
    await replica.recover(work(need))
    assert (replica.asked[0].first, replica.asked[0].last) == ("own#1", None)
    assert replica.blamed == trouble


async def test_a_live_that_crashed_here_before_goes_elsewhere(replica: Replica) -> None:
    replica.blamed_before = True
    await replica.recover(work("vacant"))
    assert (replica.asked[0].first, replica.asked[0].last) == (None, "own#1")


async def test_a_stall_is_blamed_once_however_often_it_is_tried(replica: Replica) -> None:
    await replica.recover(work("stalled", tries=1))
    await replica.recover(work("stalled", tries=2))
    assert replica.blamed == [("own#1", "stall")]
    assert [each.last for each in replica.asked] == ["own#1", "own#1"]


async def test_a_recovery_is_said_with_its_numbers(replica: Replica) -> None:
    replica.before = BEFORE._replace(lost_at_ms=77)
    assert await replica.recover(work("lost", tries=3)) is COMMITTED
    [(event, said)] = replica.events
    assert event == "live_recovered" and said["worker"] == "other#1" and said["lost_at_ms"] == 77
    assert (said["need"], said["source"], said["epoch"], said["tries"]) == ("lost", "own#1", 5, 3)
    replica.events.clear()
    await replica.recover(work("stalled"))
    assert "lost_at_ms" not in replica.events[0][1], "the Worker was lost some other time"


async def test_a_live_that_waited_is_said_to_have_waited(replica: Replica) -> None:
    replica.before = BEFORE._replace(waited_in=("gpu",), waits_since_ms=55)
    await replica.recover(work())
    assert [(event, said["waiting_since_ms"]) for event, said in replica.events] == [
        ("live_recovered_after_waiting", 55)
    ]


async def test_a_repeated_commit_is_not_said_again(replica: Replica) -> None:
    replica.outcome = o.Committed(Generation("other#1", 5), 1, 1, again=True)
    await replica.recover(work())
    assert replica.events == []


async def test_a_repair_is_said_before_the_recovery(replica: Replica) -> None:
    replica.before = BEFORE._replace(forgot=True)
    await replica.recover(work())
    assert [event for event, _ in replica.events] == ["live_repaired", "live_recovered"]


async def test_waiting_is_said_when_it_begins(replica: Replica) -> None:
    replica.outcome = o.Full(())
    await replica.recover(work())
    assert [(event, said["pools"]) for event, said in replica.events] == [("live_waiting", ["gpu", "spare"])]
    replica.events.clear()
    replica.before = BEFORE._replace(waited_in=("gpu",))
    await replica.recover(work())
    assert replica.events == []


@pytest.mark.parametrize("reason", ["configuration", "pools"])
async def test_a_live_that_nobody_may_take_leaves_every_line_and_it_is_said_once(replica: Replica, reason: str) -> None:
    replica.unplaceable, replica.no_pool = ("no Pool", "") if reason == "configuration" else ("", "no Pool")
    replica.outcome = o.Full(())
    await replica.recover(work(tries=1))
    await replica.recover(work(tries=2))
    assert [(intent.choice, intent.expected) for intent in replica.intents] == [(None, 4), (None, 4)]
    assert [event for event, _ in replica.events] == ["live_unplaceable"]
    replica.before = BEFORE._replace(waited_in=("gpu",))
    await replica.recover(work(tries=3))
    assert len(replica.events) == 2, "it has just left a line"


async def test_an_item_that_was_given_up_is_said_with_the_reason(replica: Replica) -> None:
    replica.before = BEFORE._replace(suspect=True, poisoned=2)
    replica.poison = (3, dead_letter(stored("text", b"x", False), "exit code 9"))
    await replica.recover(work("vacant"))
    event, said = replica.events[-1]
    assert event == "poison_dropped"
    assert (said["items"], said["dropped"], said["reason"], said["worker"]) == (1, 3, "exit code 9", "own#1")
    replica.events.clear()
    replica.poison = (2, b"")
    await replica.recover(work("vacant"))
    assert [event for event, _ in replica.events] == ["live_recovered"], "nothing was given up this time"
    replica.events.clear()
    replica.poison, replica.outcome = (3, b""), o.Full(())
    await replica.recover(work("vacant"))
    assert [event for event, _ in replica.events] == ["live_waiting"], "nothing was committed, and nothing given up"


async def test_only_what_needs_it_is_placed_anew(replica: Replica) -> None:
    await replica.recovery.look([LIVE])
    assert replica.intents == []
    replica.looked = o.LifetimeOver("idle", "ended")
    await replica.recovery.look([LIVE])
    assert [event for event, _ in replica.events] == ["live_expired"]
    replica.looked = work()
    await replica.recovery.round()
    assert sorted(intent.live for intent in replica.intents) == ["default/0", "default/1", "default/2"]


async def test_a_live_whose_keys_are_damaged_keeps_nobody_else_from_being_looked_at(replica: Replica) -> None:
    asked: list[list[str]] = []

    async def look_soon(lives: list[str]) -> list[Any]:
        asked.append(list(lives))
        if "default/1" in lives:
            raise StoreRefused("WRONGTYPE", code="WRONGTYPE")
        return [work()] * len(lives)

    replica.answer_with(look_soon)
    await replica.recovery.look(["default/0", "default/1", "default/2"])
    assert asked == [["default/0", "default/1", "default/2"], ["default/0"], ["default/1"], ["default/2"]]
    assert sorted(intent.live for intent in replica.intents) == ["default/0", "default/2"]


async def test_a_store_that_refuses_a_whole_call_is_asked_again_by_a_later_round(replica: Replica) -> None:
    asked: list[list[str]] = []

    async def look_soon(lives: list[str]) -> list[Any]:
        asked.append(list(lives))
        raise StoreRefused("OOM", code="OOM")

    replica.answer_with(look_soon)
    with pytest.raises(StoreRefused):
        await replica.recovery.look(["default/0", "default/1"])
    assert len(asked) == 1


async def test_many_lives_share_calls_and_no_call_has_more_than_its_share(replica: Replica) -> None:
    asked: list[int] = []

    async def look_soon(lives: list[str]) -> list[Any]:
        asked.append(len(lives))
        return [o.Idle()] * len(lives)

    replica.answer_with(look_soon)
    await replica.recovery.look([f"default/{n}" for n in range(2 * recovering.LOOKS_MAX + 1)])
    assert asked == [recovering.LOOKS_MAX, recovering.LOOKS_MAX, 1]


async def test_a_replica_that_is_told_does_a_round_and_subscribes_once(replica: Replica) -> None:
    told: list[Callable[[bytes, bytes], None]] = []

    async def subscribe(channel: str, on_message: Callable[[bytes, bytes], None]) -> None:
        told.append(on_message)

    context = replica.recovery._context
    context.store.link = cast(Any, SimpleNamespace(subscribe=subscribe))
    context.store.keys = cast(Any, SimpleNamespace(of=lambda *parts: ":".join(parts)))
    replica.looked = work()
    for n in (1, 2):
        following = asyncio.ensure_future(replica.recovery.follow())
        await asyncio.sleep(0)
        assert len(replica.intents) == 3 * (n - 1) and not following.done()
        told[0](b"due", b"")
        await asyncio.wait_for(following, 60)
        assert len(replica.intents) == 3 * n
    assert len(told) == 1
