"""Every invariant says so when it is broken: one thing in a good state is put wrong, and one sentence must name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dhsched.ownership import invariants
from dhsched.ownership.agent import Agent, Start, begun
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.ownership.state import State, frozen
from tests.conformance.scenario import Runner
from tests.conformance.subjects import ModelSubject
from tests.scenarios.language import read

SCENARIO = """# A state with something of everything.
worker A capacity=2
worker B capacity=2
place L on A => COMMITTED A@1
pull L A@1 => PULLING 1 after 0
append L text "one" => APPENDED 1
append L text "two" => APPENDED 2
release L A@1 credit 1 => ITEMS 1..1
reserve L from 1 on B => RESERVED B@2
place M on A => COMMITTED A@1
place N on B => COMMITTED B@1
end N => FINISHED ended
"""


@pytest.fixture
async def good() -> State:
    subject = ModelSubject(DEFAULT_LIMITS)
    runner = Runner(subject)
    for line in read(SCENARIO, "good").lines:
        await runner.take(line)
    return await subject.state()


def with_live(state: State, live: str, **fields: Any) -> State:
    return replace(state, lives=frozen({**state.lives, live: replace(state.lives[live], **fields)}))


def with_worker(state: State, worker: str, **fields: Any) -> State:
    return replace(state, workers=frozen({**state.workers, worker: replace(state.workers[worker], **fields)}))


def with_slots(state: State, worker: str, **slots: Any) -> State:
    tags = {tag.replace("_", "/", 1).replace("_", "@"): slot for tag, slot in slots.items()}
    table = {tag: slot for tag, slot in {**state.slots.get(worker, {}), **tags}.items() if slot}
    return replace(state, slots=frozen({**state.slots, worker: frozen(table)}))


def without_agenda(state: State) -> State:
    return replace(state, agenda=frozen({}))


WRONG: list[tuple[str, Callable[[State], State]]] = [
    ("I4: A#1 holds 2 slots of 1", lambda s: with_worker(s, "A#1", capacity=1)),
    ("I5: t/L is at A#1@1, whose slot is None", lambda s: with_slots(s, "A#1", t_L_1=None)),
    ("I5: t/L is at A#1@1, whose slot is departing", lambda s: with_slots(s, "A#1", t_L_1="departing")),
    ("I5: t/L is active on A#1 with slot starting", lambda s: with_slots(s, "A#1", t_L_1="starting")),
    ("I5: t/M is active on None with slot running", lambda s: with_slots(s, "A#1", t_M_1="running")),
    ("I5: B#2 has t/M@7 vacant, which no live owns", lambda s: with_slots(s, "B#2", t_M_7="vacant")),
    ("I2: t/L is active on B#2, selected A#1", lambda s: with_live(s, "t/L", active="B#2")),
    ("I6: t/L acked 0, released 3, appended 2", lambda s: with_live(s, "t/L", released=3)),
    ("I6: t/L acked 2, released 1, appended 2", lambda s: with_live(s, "t/L", acked=2, pending=())),
    ("I6: t/M is unclaimed, acked 0 and released 1",
     lambda s: with_live(s, "t/M", appended=1, released=1, pending=(b"tx",))),
    ("I6: t/L has 0 pending, 2 - 0 expected", lambda s: with_live(s, "t/L", pending=())),
    ("I6: t/L dropped 1 of 0 settled", lambda s: with_live(s, "t/L", dropped_poison=1)),
    ("I7: t/M is unclaimed and is on no agenda", without_agenda),
    ("I7: t/N is ended and is on no agenda", without_agenda),
    ("I7: t/L has a move and is on no agenda", without_agenda),
    ("I7: t/M needs recovery (lost) and is on no agenda", lambda s: without_agenda(with_worker(s, "A#1", lost=True))),
    ("I7: t/M needs recovery (vacant) and is on no agenda",
     lambda s: without_agenda(with_slots(s, "A#1", t_M_1="vacant"))),
    ("I7: agenda 1 names t/M, which is not of that class", lambda s: with_live(s, "t/M", priority=2)),
    ("A#1 counts load 1, starting 1, cutovers 1; recounted 2, 1, 1", lambda s: with_worker(s, "A#1", load=1)),
    ("A#1 counts load 2, starting 2, cutovers 1; recounted 2, 1, 1", lambda s: with_worker(s, "A#1", starting=2)),
    ("A#1 counts load 2, starting 1, cutovers 0; recounted 2, 1, 1", lambda s: with_worker(s, "A#1", cutovers=0)),
    ("free:gpu is wrong about A#1", lambda s: replace(s, free=frozen({"gpu": frozen({"A#1": 1.0})}))),
    ("free:gpu is wrong about B#2", lambda s: with_worker(s, "B#2", capacity=3)),
    ("slots of unknown Worker C#3", lambda s: replace(s, slots=frozen({**s.slots, "C#3": frozen({})}))),
    ("waiting and lives disagree: [('gpu', 't/M')]", lambda s: with_live(s, "t/M", waits=("gpu",))),
    ("I7: t/M is not listed", lambda s: replace(s, listed=s.listed - {"t/M"})),
    ("I7: t/gone is listed and does not exist", lambda s: replace(s, listed=s.listed | {"t/gone"})),
    ("moves and reserved slots disagree: [('B#2', 't/L@2')]", lambda s: with_live(s, "t/L", move=None)),
]  # fmt: skip


def test_a_good_state_has_nothing_to_say(good: State) -> None:
    assert invariants.of_state(good) == []
    assert invariants.of_step(good, good) == []


@pytest.mark.parametrize(("sentence", "put_wrong"), WRONG, ids=[sentence for sentence, _ in WRONG])
def test_of_state_names(good: State, sentence: str, put_wrong: Callable[[State], State]) -> None:
    # A table of an unknown Worker has no capacity to compare with: the other checks must still have their say.
    if "unknown Worker" in sentence:
        assert sentence in list(invariants.counters(put_wrong(good)))
    else:
        assert sentence in invariants.of_state(put_wrong(good))


def test_pending_input_keeps_a_claimed_live_on_the_agenda(good: State) -> None:
    without_move = with_slots(with_live(good, "t/L", move=None), "B#2", t_L_2=None)
    assert "I7: t/L has pending input and is on no agenda" in invariants.of_state(without_agenda(without_move))


@pytest.mark.parametrize(
    ("sentence", "put_wrong"),
    [
        ("I0: t/L went from 1/2 to 0/2", lambda s: with_live(s, "t/L", epoch=0)),
        ("I0: t/L went from 1/2 to 1/1", lambda s: with_live(s, "t/L", issued=1)),
        ("I0: t/L went from 1/2 to 3/2", lambda s: with_live(s, "t/L", epoch=3)),
        ("I1: t/L epoch 1 is of A#1 and B#2", lambda s: with_live(s, "t/L", selected="B#2")),
        ("I6: t/L epoch 1 went back from (1, 0) to (0, 0)", lambda s: with_live(s, "t/L", released=0)),
        (
            "I0: t/N was swept at 1, base 0",
            lambda s: replace(s, lives=frozen({k: v for k, v in s.lives.items() if k != "t/N"})),
        ),
    ],
)
def test_of_step_names(good: State, sentence: str, put_wrong: Callable[[State], State]) -> None:
    assert sentence in invariants.of_step(good, put_wrong(good))


def test_of_step_names_a_create_with_a_number_of_an_earlier_life(good: State) -> None:
    base = replace(good, cell=replace(good.cell, epoch_base=5))
    created = replace(base, lives=frozen({**base.lives, "t/P": replace(base.lives["t/M"], epoch=5)}))
    assert invariants.of_step(base, created) == ["I0: t/P was created at 5, base 5"]


def test_old_work_names_the_epoch_that_changed_ownership(good: State) -> None:
    for wrong in ({"epoch": 2}, {"selected": "B#2"}, {"active": None}):
        after = with_live(good, "t/L", **wrong)
        assert invariants.old_work(good, after, "t/L", 0)[0].startswith("I3: work of epoch 0 moved t/L from A#1@1 to ")
        assert invariants.old_work(good, after, "t/L", 1) == []
    assert invariants.old_work(good, good, "t/L", 0) == []
    assert invariants.old_work(good, good, "t/Z", 0) == []


def test_the_trace_names_a_release_to_a_superseded_generation_or_pull() -> None:
    trace = invariants.Releases()
    assert trace.release("t/L", "A#1", 1, 1) == []
    assert trace.release("t/L", "A#1", 1, 1) == []
    assert trace.release("t/L", "A#1", 1, 2) == []
    assert trace.release("t/L", "A#1", 1, 1) == ["I2: t/L released to A#1@1 pull 1 after 1 pull 2"]
    assert trace.release("t/L", "B#2", 1, 3) == ["I2: t/L epoch 1 released to A#1 and B#2"]
    assert trace.release("t/L", "B#2", 2, 1) == []
    assert trace.release("t/L", "A#1", 1, 9) == ["I2: t/L released to A#1@1 pull 9 after 2 pull 1"]
    assert trace.release("t/M", "A#1", 1, 1) == []


def test_of_agents_counts_what_runs_whatever_its_phase() -> None:
    agent = begun(begun(Agent(capacity=1), Start("t/L@1")), Start("t/M@1"))
    assert invariants.of_agents({"A#1": agent}) == ["I4: A#1 runs 2 of 1: ['t/L@1', 't/M@1']"]
    assert invariants.of_agents({"A#1": begun(Agent(capacity=1), Start("t/L@1"))}) == []
