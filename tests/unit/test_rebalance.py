"""Rebalancing never flaps: properties over random fleets (placement/rebalance.py)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dhsched.placement.rebalance import STOP_SHARE, Advice, Holding, advise, widest

SPREAD = 0.2


@st.composite
def holdings(draw: st.DrawFn) -> Holding:
    capacity = draw(st.one_of(st.integers(1, 8), st.sampled_from([20, 40, 100])))
    load = draw(st.integers(0, capacity))
    return Holding(load, capacity, draw(st.integers(0, load)))


fleets = st.dictionaries(st.sampled_from([f"w#{n}" for n in range(1, 9)]), holdings(), min_size=1)
spreads = st.sampled_from([0.01, 0.05, 0.2, 0.5])


def applied(workers: dict[str, Holding], advice: list[Advice]) -> dict[str, Holding]:
    """The fleet after these moves. A live that has come is one that could be asked to leave again."""
    after = dict(workers)
    for each in advice:
        source, target = after[each.source], after[each.target]
        assert each.lives >= 1 and source.movable >= each.lives, "only what may move moves"
        after[each.source] = replace(source, load=source.load - each.lives, movable=source.movable - each.lives)
        after[each.target] = replace(target, load=target.load + each.lives, movable=target.movable + each.lives)
    return after


@given(fleets, spreads)
def test_after_its_moves_nothing_more_is_advised_and_nobody_both_gives_and_takes(
    workers: dict[str, Holding], spread: float
) -> None:
    advice = advise(workers, spread=spread)
    after = applied(workers, advice)
    assert all(holding.load <= holding.capacity for holding in after.values())
    assert advise(after, spread=spread) == []
    assert advise(after, spread=spread, under_way=bool(advice)) == []
    assert {each.source for each in advice}.isdisjoint(each.target for each in advice)
    assert sum(holding.load for holding in after.values()) == sum(holding.load for holding in workers.values())


@given(fleets, spreads, st.integers(1, 4))
def test_done_a_few_at_a_time_it_ends_and_nothing_moves_back(
    workers: dict[str, Holding], spread: float, at_a_time: int
) -> None:
    gave: set[str] = set()
    took: set[str] = set()
    under_way, moved = False, 0
    for _ in range(500):
        advice = advise(workers, spread=spread, under_way=under_way, moves_max=at_a_time)
        under_way = bool(advice)
        if not advice:
            break
        moved += sum(each.lives for each in advice)
        gave |= {each.source for each in advice}
        took |= {each.target for each in advice}
        workers = applied(workers, advice)
    assert not under_way, "it ends"
    assert gave.isdisjoint(took)
    if moved:
        left = widest(workers, {n: w.load for n, w in workers.items()}, {n: w.movable for n, w in workers.items()})
        assert left is None or left[2] <= spread * STOP_SHARE, "it went on until it was even enough"


@given(fleets, spreads)
def test_doing_it_a_few_at_a_time_takes_no_more_moves(workers: dict[str, Holding], spread: float) -> None:
    at_once = sum(each.lives for each in advise(workers, spread=spread))
    moved, under_way = 0, False
    while advice := advise(workers, spread=spread, under_way=under_way, moves_max=1):
        under_way, moved = True, moved + 1
        workers = applied(workers, advice)
    assert moved == at_once


def test_it_begins_past_the_spread_and_stops_at_half_of_it() -> None:
    fleet = {"a#1": Holding(60, 100, 60), "b#2": Holding(40, 100, 40)}
    assert advise(fleet, spread=SPREAD) == [], "60 against 41: within the spread"
    fleet["a#1"] = Holding(62, 100, 62)
    assert advise(fleet, spread=SPREAD) == [Advice("a#1", "b#2", 6)], "56 against 47 is even enough"


def test_what_may_not_move_stays_and_a_tiny_worker_holds_nobody_up() -> None:
    fleet = {
        "full#1": Holding(10, 10, 0),
        "tiny#2": Holding(1, 1, 1),
        "big#3": Holding(9, 10, 9),
        "new#4": Holding(0, 10, 0),
    }
    assert advise(fleet, spread=SPREAD) == [Advice("big#3", "new#4", 4)]
