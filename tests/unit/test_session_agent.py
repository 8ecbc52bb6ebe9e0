"""The agent with runtimes of the test: when a runtime counts as prepared, what is departed, and how it is stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dhsched.links.messages import Source
from dhsched.ownership.journal import Change
from dhsched.types import BUSY_MAX, SlotState
from dhsched.worker import agent as agents
from dhsched.worker.agent import SessionAgent, part_of
from dhsched.worker.inbox import LiveInfo, SessionInbox
from dhsched.worker.pull_client import Over
from dhsched.worker.reasons import CANCELLED, RETURNED
from dhsched.worker.session import Emission, Session
from tests.harness.linking import eventually


class Pulls:
    """Input connections that answer `open` when the test says so."""

    def __init__(self) -> None:
        self.opened: dict[str, asyncio.Future[LiveInfo]] = {}
        self.claimed: list[str] = []
        self.left: list[str] = []

    def open(self, inbox: SessionInbox) -> asyncio.Future[LiveInfo]:
        opening = self.opened[inbox.session.live] = asyncio.get_running_loop().create_future()
        return opening

    def leave(self, session: Session) -> None:
        self.left.append(session.live)

    def claim(self, session: Session) -> None:
        self.claimed.append(session.live)
        SessionInbox(session).begins_after(0, b"{}", b"")

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None: ...

    def emit(self, session: Session, emission: Emission) -> None: ...

    def log(self, session: Session, source: Source, text: str | bytes) -> None: ...


class Rig:
    """An agent with room for two runtimes, which are built when `built` is set and then ask for input."""

    def __init__(self, **options: Any) -> None:
        self.pulls = Pulls()
        self.built = asyncio.Event()
        self.departs: list[tuple[str, int, str]] = []
        self.prepared = 0
        self.rev = 0
        self.runtime: Any = self.build_and_consume
        self.agent = SessionAgent(
            lambda session: self.runtime(session),
            worker="w#1",
            capacity=2,
            pulls=self.pulls,
            say_depart=lambda live, number, reason: self.departs.append((live, number, reason)),
            say_prepared=self.say_prepared,
            **options,
        )

    def say_prepared(self) -> None:
        self.prepared += 1

    async def build_and_consume(self, session: Session) -> None:
        await self.built.wait()
        async for _ in session.inputs():
            pass

    def table(self, **slots: SlotState) -> None:
        """Hand the agent its table: slots by live, each of generation 1."""
        self.rev += 1
        table = {f"t/{live}@1": state for live, state in slots.items()}
        self.agent.take_table(home="", term=1, rev=self.rev, table=table)

    async def opened(self, live: str = "a") -> None:
        """Answer what the live is made of, so that its runtime begins."""
        await eventually(lambda: f"t/{live}" in self.pulls.opened)
        self.pulls.opened[f"t/{live}"].set_result(LiveInfo("anna"))
        await asyncio.sleep(0)


async def test_prepared_is_said_when_the_runtime_is_built_and_not_before() -> None:
    rig = Rig()
    rig.table(a="reserved")
    await eventually(lambda: rig.pulls.opened)
    assert rig.agent.report().prepared == [] and rig.agent.report().busy == ["t/a@1"]
    await rig.opened()
    assert rig.prepared == 0 and rig.agent.report().prepared == [], "it is still being built"
    assert rig.agent.states == {"starting": 1}
    rig.built.set()
    await eventually(lambda: rig.prepared)
    assert rig.agent.report().prepared == ["t/a@1"] and rig.agent.report().busy == []
    assert rig.agent.states == {"prepared": 1} and rig.pulls.claimed == []
    rig.table(a="starting")
    await eventually(lambda: rig.pulls.claimed)
    assert rig.prepared == 1 and rig.agent.report().prepared == [] and rig.agent.states == {"running": 1}


async def test_a_slot_that_is_started_claims_as_soon_as_its_runtime_asks() -> None:
    rig = Rig()
    rig.built.set()
    rig.table(a="starting", b="starting")
    await rig.opened("a")
    await rig.opened("b")
    await eventually(lambda: len(rig.pulls.claimed) == 2)
    assert rig.prepared == 0 and rig.agent.runtimes == 2 and rig.agent.report().busy == []


async def test_the_table_is_compared_once_in_a_tick_however_often_it_is_asked_for() -> None:
    rig = Rig()
    compared = 0

    def actions() -> list[Any]:
        nonlocal compared
        compared += 1
        return []

    rig.agent.rules.actions = actions  # type: ignore[method-assign]
    for n in (1, 2):
        rig.table(a="starting")
        rig.agent.act_soon()
        rig.agent.act_soon()
        await asyncio.sleep(0)
        assert compared == n


async def test_a_runtime_that_asks_for_time_is_reported_as_busy() -> None:
    rig = Rig()

    async def slow(session: Session) -> None:
        async for _ in session.inputs():
            pass

    rig.runtime = slow
    rig.table(a="starting")
    await rig.opened()
    await eventually(lambda: rig.pulls.claimed)
    assert rig.agent.report().busy == []
    running = rig.agent._running["t/a@1"]
    running.inbox.session.extend(60)
    assert rig.agent.report().busy == ["t/a@1"] and rig.agent.report().busy == ["t/a@1"]


@pytest.mark.parametrize(
    "how, reason", [("returns", RETURNED), ("raises", "ValueError: broken"), ("cancels", CANCELLED)]
)
async def test_a_runtime_that_ends_by_itself_departs_with_its_reason(how: str, reason: str) -> None:
    rig = Rig()

    async def ends(session: Session) -> None:
        if how == "raises":
            raise ValueError("broken")
        if how == "cancels":
            raise asyncio.CancelledError

    rig.runtime = ends
    rig.table(a="starting")
    await rig.opened()
    await eventually(lambda: rig.departs)
    assert rig.departs[0][:2] == ("t/a", 1) and reason in rig.departs[0][2]
    assert rig.agent.runtimes == 0 and rig.pulls.left == ["t/a"]
    rig.table(a="starting")
    await asyncio.sleep(0)
    assert rig.agent.runtimes == 0, "this generation is not run again in this boot"


async def test_a_depart_is_repeated_after_a_while_and_until_the_table_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()

    async def ends(session: Session) -> None: ...

    rig.runtime = ends
    rig.table(a="starting")
    await rig.opened()
    await eventually(lambda: rig.departs)
    for _ in range(3):
        rig.table(a="starting")
        await asyncio.sleep(0)
    assert len(rig.departs) == 1, "not with every table"
    monkeypatch.setattr(agents, "DEPART_AGAIN_S", 0.0)
    rig.table(a="starting")
    await eventually(lambda: len(rig.departs) == 2)
    assert rig.departs[0] == rig.departs[1], "with its reason"
    rig.table()
    await asyncio.sleep(0)
    assert len(rig.departs) == 2 and rig.agent._departs == {} and rig.agent._reasons == {}


async def test_a_runtime_is_stopped_when_its_slot_is_gone_and_departs_without_a_reason() -> None:
    rig = Rig()
    rig.built.set()
    rig.table(a="starting")
    await rig.opened()
    await eventually(lambda: rig.pulls.claimed)
    rig.table(a="departing")
    await eventually(lambda: rig.departs)
    assert rig.departs == [("t/a", 1, "")] and rig.agent.runtimes == 0
    await asyncio.wait_for(rig.agent.stopped(), 60)


async def test_a_runtime_that_does_not_stop_is_cancelled_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "CANCEL_AGAIN_S", 0.01)
    rig = Rig(teardown_s=0.01)
    cancelled = 0

    async def stubborn(session: Session) -> None:
        nonlocal cancelled
        while cancelled < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled += 1

    rig.runtime = stubborn
    rig.table(a="starting")
    await rig.opened()
    rig.agent.stop_all()
    assert rig.agent.states == {"stopping": 1}
    rig.agent.stop_all()
    await asyncio.wait_for(rig.agent.stopped(), 60)
    assert cancelled == 3 and rig.agent.runtimes == 0


async def test_a_runtime_is_given_time_to_stop() -> None:
    rig = Rig(teardown_s=60)
    torn_down = asyncio.Event()

    async def tears_down(session: Session) -> None:
        async for _ in session.inputs():
            pass
        await torn_down.wait()

    rig.runtime = tears_down
    rig.table(a="starting")
    await rig.opened()
    await eventually(lambda: rig.pulls.claimed)
    rig.agent.over(rig.agent._running["t/a@1"].inbox.session)
    await asyncio.sleep(0.02)
    assert rig.agent.runtimes == 1 and not rig.agent._empty.is_set()
    torn_down.set()
    await asyncio.wait_for(rig.agent.stopped(), 60)


async def test_a_session_without_a_runtime_yet_is_stopped_at_once() -> None:
    rig = Rig(teardown_s=60)
    rig.table(a="starting", b="starting")
    await eventually(lambda: len(rig.pulls.opened) == 2)
    rig.pulls.opened["t/b"].set_exception(Over())
    rig.agent.stop_all()
    await asyncio.wait_for(rig.agent.stopped(), 60)
    assert sorted(rig.pulls.left) == ["t/a", "t/b"]


async def test_an_agent_that_stops_starts_nothing() -> None:
    rig = Rig()
    rig.agent.stop_all()
    rig.table(a="starting")
    await asyncio.sleep(0.01)
    assert rig.pulls.opened == {}


async def test_sessions_get_what_the_process_shares_and_run_in_its_context() -> None:
    entered: list[str] = []

    class Using:
        def __init__(self, session: Session) -> None:
            self.session = session

        def __enter__(self) -> None:
            entered.append(f"in {self.session.live}")

        def __exit__(self, *_: object) -> None:
            entered.append(f"out {self.session.live}")

    rig = Rig(shared="models", using=Using)

    async def runtime(session: Session) -> None:
        entered.append(f"{session.shared} {session.digital_id}")

    rig.runtime = runtime
    rig.table(a="starting")
    await rig.opened()
    await eventually(lambda: rig.departs)
    assert entered == ["in t/a", "models anna", "out t/a"]


def test_reports_rotate_through_more_slots_than_one_carries() -> None:
    tags = [f"t/{n}@1" for n in range(BUSY_MAX + 10)]
    assert part_of(tags[:BUSY_MAX], 7) == tags[:BUSY_MAX]
    parts = [part_of(tags, report) for report in range(1, 4)]
    assert all(len({*part}) == len(part) == BUSY_MAX for part in parts)
    assert {tag for part in parts for tag in part} == {*tags}
