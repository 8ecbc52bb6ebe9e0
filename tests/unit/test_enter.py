"""enter: what a home that begins does to the numbers, and what can be told of a lost history.

The interleavings are explored in spec/Failover.tla and spec/Homes.tla; here each rule stands alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dhsched.errors import BadValue
from dhsched.ownership.agent import Agent, take_table
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import EMPTY, Cell, Home, State
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.enter import HOMES_MAX, JUMP_MIN, JUMP_SPREAD, enter, is_home, survives
from dhsched.ownership.steps.place import Create
from dhsched.types import NUMBER_MAX

LIMITS = Limits()
LIVE = "t/a"
JUMP = JUMP_MIN + 7


def run(state: State, step: str, **arguments: Any) -> tuple[State, Any]:
    return STEPS[step](state, 1, LIMITS, **arguments)


def entered(state: State, server: str, jump: int = JUMP) -> State:
    return enter(state, 1, LIMITS, server=server, jump=jump)[0]


def with_a_claimed_live() -> State:
    state = EMPTY
    for name in ("v", "w"):
        state, registered = run(state, "register_worker", name=name, boot=name, pool="p", capacity=2)
        state, _ = run(state, "report", worker=registered.worker, boot=name)
    create = Create(digital_id="d", fingerprint="f")
    state, _ = run(state, "place", live=LIVE, operation="o", cause="create", create=create, candidates=("w#2",))
    state, _ = run(state, "pull", live=LIVE, worker="w#2", epoch=1, after=0, controller="c")
    return state


def test_entering_touches_no_live_no_slot_and_no_worker() -> None:
    before = with_a_claimed_live()
    after = entered(before, "s1")
    assert after == replace(before, cell=after.cell)
    assert after.cell.epoch_floor == before.cell.epoch_floor


def test_every_number_jumps() -> None:
    before = with_a_claimed_live()
    state = entered(before, "s1")
    state, pulling = run(state, "pull", live=LIVE, worker="w#2", epoch=1, after=0, controller="c")
    assert pulling.pull_no == JUMP + 1
    state, moved = run(state, "place", live=LIVE, operation="p", cause="reassign", expected=1, candidates=("v#1",))
    assert moved.generation.epoch == JUMP + 1
    assert moved.rev > before.cell.rev + JUMP
    state, registered = run(state, "register_worker", name="w", boot="x", pool="p", capacity=2)
    assert registered.worker == f"w#{2 + JUMP + 1}"


def test_a_number_that_was_reserved_before_a_loss_is_committed_in_one_history_only() -> None:
    """The reservation is kept; its commit is lost, and is made once more in the next home, where the live is elsewhere
    in its input: two generations of one Worker under one number."""
    state = entered(with_a_claimed_live(), "s1")
    state, reserved = run(state, "reserve", live=LIVE, expected=1, candidates=("v#1",))
    commit = {"live": LIVE, "cause": "reassign", "expected": 1, "candidates": ("v#1",)}
    _, lost = run(state, "place", operation="p", **commit)
    _, again = run(entered(state, "s2"), "place", operation="q", **commit)
    assert lost.generation.epoch == reserved.number
    assert again.generation.epoch != lost.generation.epoch


def test_the_same_server_enters_once() -> None:
    state = entered(EMPTY, "s1")
    again, outcome = enter(state, 2, LIMITS, server="s1", jump=JUMP)
    assert again is state and outcome.again
    counted = replace(state, cell=replace(state.cell, pos=7))
    assert entered(counted, "s2").cell.homes == (Home("s1", 0, 1), Home("s2", 7, 1))


def test_the_oldest_homes_are_forgotten() -> None:
    state = EMPTY
    for number in range(HOMES_MAX + 2):
        state = entered(state, f"s{number}")
    assert len(state.cell.homes) == HOMES_MAX
    assert state.cell.homes[0].name == "s2"


def test_a_home_whose_numbers_would_not_fit_is_refused() -> None:
    full = replace(EMPTY, cell=Cell(epoch_base=NUMBER_MAX - 2 * JUMP_MIN))
    with pytest.raises(BadValue, match="would not fit"):
        entered(full, "s1")
    assert NUMBER_MAX // (JUMP_MIN + JUMP_SPREAD) > 4_000_000, "so many homes a cell can have"


def test_a_call_runs_only_in_the_home_that_its_connection_greeted() -> None:
    cell = entered(EMPTY, "s1").cell
    assert is_home(cell, greeted="s1")
    assert is_home(cell, greeted="s1", server="s1")
    assert not is_home(cell, greeted="s0")
    assert not is_home(cell, greeted="s1", server="s2"), "promoted again, and not entered since"


@pytest.mark.parametrize(
    ("home", "told", "there"),
    [
        ("s1", 5, True),
        ("s1", 6, False),  # Home s2 began at 5: what came after it is lost.
        ("s2", 9, True),  # The current home goes on.
        ("s2", 10, False),  # The data went back, and its server kept its name.
        ("s3", 1, False),  # A home that this history does not have.
    ],
)
def test_what_was_told_is_there_if_its_home_was_left_no_earlier(home: str, told: int, there: bool) -> None:
    assert survives((Home("s1", 0, 0), Home("s2", 5, 0)), home, told, pos=9) is there


def test_an_agent_takes_the_table_of_another_home_whatever_its_revision() -> None:
    agent = take_table(Agent(1), home="s1", term=1, rev=9, table={"t/a@1": "running"})
    assert take_table(agent, home="s1", term=1, rev=8, table={}) is agent
    other = take_table(agent, home="s2", term=1, rev=8, table={})
    assert (other.home, other.rev, other.table) == ("s2", 8, {})
