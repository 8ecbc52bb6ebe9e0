"""The search of `dhsched calibrate`: every capacity is found, in few steps."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dhsched.calibrate.search import INFINITE, Ack, Pace, Search, Step, disturbed, first_wait_s, pace_of, step_of
from dhsched.cli.calibrate import bar_of, line_of


@pytest.mark.parametrize("most", [1, 2, 3, 7, 64, 200])
def test_every_capacity_is_found_in_few_steps(most: int) -> None:
    for capacity in range(most + 1):
        search, tried = Search(most), list[int]()
        while (lives := search.next()) is not None:
            tried.append(lives)
            search.tried(lives, late=lives > capacity)
        assert search.good == capacity
        assert len({*tried}) == len(tried) <= 2 * most.bit_length() and max(tried) <= max(1, 2 * capacity)


def test_a_pace_is_the_mean_of_the_items_between_the_first_and_the_last_ack() -> None:
    assert pace_of([Ack(1, 1.0, 0.0), Ack(2, 1.5, 0.0), Ack(3, 3.0, 0.0)]) == Pace(1.0, 0.0)
    assert pace_of([Ack(2, 1.0, 0.5), Ack(6, 3.0, 1.5)]) == Pace(0.5, 0.25), "four items, acked together"
    assert pace_of([Ack(1, 1.0, 0.0)]).total_s == pace_of([]).total_s == INFINITE


def test_output_that_is_left_out_counts_as_time() -> None:
    in_time, skipping = Pace(2.0, 0.0), Pace(2.0, 0.3)
    assert step_of([in_time, in_time], 2.2) == Step(2, 2.0, 2.0, late=False)
    assert step_of([in_time, skipping], 2.2) == Step(2, 2.3, 2.15, late=True, missed_s=0.3)


def test_fewer_lives_that_are_slower_than_more_were_disturbed() -> None:
    steps = [Step(lives, pace_s, pace_s, late=False) for lives, pace_s in ((1, 1.8), (2, 1.85), (4, 1.82), (8, 3.0))]
    assert not disturbed(steps, 0.1)
    assert disturbed([*steps, Step(9, 2.1, 2.1, late=True)], 0.1)


def test_lives_begin_at_different_moments_of_an_item() -> None:
    for lives in (2, 8, 32):
        moments = sorted(first_wait_s(number, 2.0) for number in range(lives))
        apart = [after - before for before, after in pairwise((*moments, 2.0))]
        assert moments[0] == 0 and moments[-1] < 2.0
        assert max(apart) < 2 * 2.0 / lives and min(apart) > 0.35 * 2.0 / lives


def test_a_step_is_shown_against_the_limit() -> None:
    assert line_of(Step(1, 0.4, 0.4, late=False)) == "1 live: 0.400 s per item"
    assert (
        line_of(Step(4, 0.5, 0.5, late=True, missed_s=0.1))
        == "4 lives: 0.500 s per item, 0.100 s of it left out or late: late"
    )
    assert line_of(Step(4, INFINITE, INFINITE, late=True)) == "4 lives: fewer than two acks of one of them, late"
    assert bar_of(Step(4, 0.5, 0.5, late=True), 0.4) == "#" * 50 + " 0.500 s late"
    assert bar_of(Step(4, 0.5, 0.5, late=True, missed_s=0.1), 0.4) == "#" * 40 + "+" * 10 + " 0.500 s late"
    assert bar_of(Step(4, INFINITE, INFINITE, late=True), 0.4) == "#" * 70 + " fewer than two acks, late"
