"""Virtual runs with several cells: short seeds of each number of cells, a cell that is away, and the judge `beside`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count

import pytest

from dhsched.errors import DhschedError, Refused, Unreachable
from dhsched.ownership.state import EMPTY
from tests.virtual.apart import run_apart
from tests.virtual.beside import CALM_S, MOST_S, Beside
from tests.virtual.judges import joined
from tests.virtual.loop import VirtualLoop
from tests.virtual.schedule import CELL_KINDS, Fault, draw_faults, is_dense
from tests.virtual.swarm import SWARMS

SHORT_H = 0.018
SECOND = 100  # The hundreds of a fault's first number choose the cell.
FAULTS = [
    Fault(8.0, "kill-worker", 0, 0, 2.0),
    Fault(10.0, "store-forget", SECOND, 0, 2.0),
    Fault(16.0, "kill-controller", 0, 0, 1.0),
    Fault(20.0, "store-clock", SECOND + 3, 0, 1.0),
    Fault(22.0, "store-full", 0, 0, 4.0),
    Fault(28.0, "lose-store", 0, 0, 1.0),
    Fault(30.0, "store-forget", 0, 0, 2.0),
    Fault(36.0, "kill-replica", 0, 0, 2.0),
    Fault(40.0, "store-promote", SECOND + 1, 0, 1.0),
    Fault(46.0, "lose-cell", SECOND, 0, 3.0),
]
AWAY = [Fault(8.0, "lose-cell", SECOND, 0, 8.0), Fault(38.0, "lose-cell", 0, 0, 8.0)]
"""First the second cell and then the first one, where the configuration is written, has no store for 24 s."""


def plain_seed(cells: int) -> int:
    """Return the first plain seed of so many cells without a room."""
    for seed in count(1):
        drawn = SWARMS["cells"](seed)
        if (drawn.cells, drawn.dense, drawn.rooms) == (cells, False, 0):
            return seed
    raise AssertionError


@pytest.mark.timeout(300)  # A process of a few CPU seconds each.
@pytest.mark.parametrize("cells", [2, 3])
def test_a_run_with_several_cells_breaks_no_rule_whatever_happens_to_one_of_them(cells: int) -> None:
    found = run_apart(plain_seed(cells), SHORT_H, FAULTS, swarm="cells")
    assert found.violations == ()
    assert found.line["faults"] == len(FAULTS)
    assert found.line["pushes"] > 10


@pytest.mark.timeout(300)
def test_while_one_cell_is_away_calls_for_the_others_are_answered() -> None:
    found = run_apart(plain_seed(2), SHORT_H, AWAY, swarm="cells")
    assert found.violations == ()
    judged = {kind: found.answers.get(f"beside {kind}", 0) for kind in ("push", "list", "get")}
    assert judged["push"] > 3 and judged["list"] > 3, judged


@pytest.mark.release
@pytest.mark.timeout(600)
def test_a_seed_with_several_cells_gives_the_same_trace_again() -> None:
    first, again = (run_apart(plain_seed(3), SHORT_H, FAULTS, swarm="cells") for _ in range(2))
    assert first.line == again.line


def test_runs_have_one_cell_unless_several_are_asked_for() -> None:
    drawn = {name: [draw(seed) for seed in range(60)] for name, draw in SWARMS.items()}
    several = drawn.pop("cells")
    assert {each.cells for some in drawn.values() for each in some} == {1}
    assert {each.cell_names for some in drawn.values() for each in some} == {("",)}
    assert not any("cells" in repr(each) for some in drawn.values() for each in some), "a trace has the swarm's text"
    assert {each.cells for each in several} == {2, 3}
    assert all(each.workers >= 2 * each.cells for each in several)
    assert {is_dense(seed, "cells") for seed in range(20)} == {True, False}
    for seed in range(6):
        kinds = {name: {fault.kind for fault in draw_faults(seed, 3.0, name)} for name in ("cells", "plain", "dense")}
        assert {*CELL_KINDS} <= kinds["cells"]
        assert "lose-cell" not in kinds["plain"] | kinds["dense"]


# -- the model of a cell


def test_the_model_of_a_cell_numbers_its_workers_from_where_the_store_does() -> None:
    begun = joined(EMPTY, 2_000_000, [b"a b c", 1])
    assert (begun.cell.workers_issued, begun.cell.pos) == (2_000_000, 1)
    further = replace(begun, cell=replace(begun.cell, workers_issued=2_000_005))
    again = joined(further, 2_000_000, [b"a b c", 2])
    assert (again.cell.workers_issued, again.cell.pos) == (2_000_005, 2), "a second service that starts"
    refused = joined(EMPTY, 2_000_000, [b"", 1])
    assert (refused.cell.workers_issued, refused.cell.pos) == (0, 1), "a cell that one deployment has used alone"


# -- the judge `beside`


class Judged:
    """The judge with a clock that the test moves. Lives of cell a begin with `a`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.wrong: list[str] = []
        self.judge = Beside(loop, lambda live_id: live_id[0], self.wrong.append)

    def call(self, kind: str, live_id: str, seconds: float = 0.1, error: DhschedError | None = None) -> None:
        try:
            with self.judge.call(kind, live_id):
                self.loop.now += seconds
                if error is not None:
                    raise error
        except DhschedError as raised:
            assert raised is error


@pytest.fixture
def judged() -> Iterator[Judged]:
    with closing(VirtualLoop()) as loop:
        loop.now = 1_000.0
        yield Judged(loop)


AWAY_NOW = Refused(503, {"code": "STORE_UNAVAILABLE", "detail": "away"}, None)
FULL = Refused(503, {"code": "FULL", "detail": "full"}, None)


def test_a_call_for_another_cell_than_the_one_that_is_away_is_answered_soon(judged: Judged) -> None:
    with judged.judge.trouble("a"):
        for kind in ("push", "get", "end", "create"):
            judged.call(kind, "b1")
        judged.call("list", "")
        judged.call("create", "b1", error=FULL)
        assert judged.wrong == []
        judged.call("push", "b1", error=AWAY_NOW)
        judged.call("push", "b1", error=Unreachable("nobody answered", {}))
        judged.call("get", "b1", seconds=MOST_S["get"] + 0.1)
        judged.call("list", "", seconds=MOST_S["list"] + 0.1)
    assert [each.split(" while ")[0] for each in judged.wrong] == [
        "beside: push b1 of cell b failed",
        "beside: push b1 of cell b failed",
        f"beside: get b1 of cell b took {MOST_S['get'] + 0.1:.1f} s",
        f"beside: list took {MOST_S['list'] + 0.1:.1f} s",
    ]
    assert judged.judge.judged == {"push": 3, "get": 2, "end": 1, "create": 2, "list": 2}


def test_a_list_may_lack_a_cell_that_is_away_and_no_other_one(judged: Judged) -> None:
    says = "cell {} cannot be asked now: the lives there are not in this list".format
    with judged.judge.trouble("a"):
        judged.call("list", "", error=Unreachable(says("a")))
        judged.call("list", "", seconds=MOST_S["list"] + 0.1, error=Unreachable(says("a")))
        judged.call("list", "", error=Unreachable(says("a, b")))
    assert len(judged.wrong) == 2
    assert judged.wrong[0].startswith(f"beside: list took {MOST_S['list'] + 0.1:.1f} s")
    assert judged.wrong[1].startswith("beside: list failed") and says("a, b") in judged.wrong[1]


def test_a_call_for_the_cell_that_is_away_is_not_judged_and_none_is_near_another_fault(judged: Judged) -> None:
    judged.call("push", "b1", error=AWAY_NOW)
    with judged.judge.trouble("a"):
        judged.call("push", "a1", error=AWAY_NOW)
        with judged.judge.trouble(""):
            judged.call("push", "b1", error=AWAY_NOW)
        judged.loop.now += CALM_S - 1
        judged.call("push", "b1", error=AWAY_NOW)
        assert judged.wrong == []
        judged.loop.now += 1
        judged.call("push", "b1", error=AWAY_NOW)
    judged.call("push", "b1", error=AWAY_NOW)
    assert len(judged.wrong) == 1
    assert judged.judge.judged == {"push": 1}
