"""Virtual runs in `make test`: short seeds, the same seed twice, a schedule that is shrunk, and a broken rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from random import Random

import pytest

from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.ownership.state import EMPTY
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from tests.chaos.trace import Taken
from tests.virtual import hour_book, passed, schedule
from tests.virtual.apart import Found, run_all, run_apart
from tests.virtual.judges import EMITS_TTL_MS, difference, without_old_boots, without_old_emits
from tests.virtual.schedule import (
    BURST_S,
    DENSE_KINDS,
    EXTRA,
    FOCUS,
    FOCUS_S,
    KINDS,
    Fault,
    draw_faults,
    is_dense,
    written,
)
from tests.virtual.shrink import shrink
from tests.virtual.swarm import SWARMS

SHORT_H = 0.02
DENSE = [
    Fault(5.0, "kill-worker", 0, 0, 2.0),
    Fault(9.0, "freeze-worker", 1, 0, 8.0),
    Fault(12.0, "kill-controller", 0, 0, 1.0),
    Fault(20.0, "cut", 3, 1, 6.0),
    Fault(25.0, "half-open", 2, 0, 1.0),
    Fault(32.0, "store-forget", 0, 0, 2.0),
    Fault(40.0, "store-clock", 3, 0, 1.0),
    Fault(45.0, "kill-replica", 0, 0, 3.0),
    Fault(52.0, "store-promote", 1, 1, 1.0),
    Fault(60.0, "store-full", 0, 0, 4.0),
]


@pytest.mark.timeout(300)  # Two processes of a few CPU seconds each.
def test_the_same_seed_gives_the_same_trace_to_the_byte_and_breaks_no_rule() -> None:
    first, again = (run_apart(2, SHORT_H, DENSE) for _ in range(2))
    assert first.violations == ()
    assert json.dumps(first.line) == json.dumps(again.line)
    assert first.line["faults"] == len(DENSE)
    assert first.line["pushes"] > 20


def test_a_schedule_is_drawn_from_its_seed_and_read_back_as_it_was_written() -> None:
    drawn = draw_faults(7, 1.0)
    assert drawn == draw_faults(7, 1.0) != draw_faults(8, 1.0)
    assert len(drawn) >= 60
    assert schedule.read(written(drawn)) == drawn
    assert {fault.kind for seed in range(5) for fault in draw_faults(seed, 1.0, "plain")} == {*KINDS, *EXTRA}
    with pytest.raises(ValueError, match="names the fault earthquake"):
        schedule.read("1.0 earthquake 0 0 1.0")


def test_every_other_seed_is_dense_and_its_faults_come_in_bursts_with_a_focus() -> None:
    dense = [seed for seed in range(100) if is_dense(seed, "any")]
    assert 30 < len(dense) < 70
    assert draw_faults(dense[0], 1.0) == draw_faults(dense[0], 1.0, "dense") != draw_faults(dense[0], 1.0, "plain")
    assert SWARMS["any"](dense[0]) == SWARMS["dense"](dense[0])
    assert not any(is_dense(seed, swarm) for seed in range(9) for swarm in ("plain", "small"))
    drawn = [fault for seed in range(5) for fault in draw_faults(seed, 1.0, "dense")]
    assert {fault.kind for fault in drawn} == {*DENSE_KINDS, *EXTRA, FOCUS}
    assert schedule.read(written(drawn)) == drawn
    one_hour = draw_faults(1, 1.0, "dense")
    assert one_hour == sorted(one_hour, key=lambda fault: fault.at_s)
    focuses = [fault.at_s for fault in one_hour if fault.kind == FOCUS]
    lag_max_s = max(BURST_S, FOCUS_S[1] / 2)
    for fault in one_hour:
        assert any(at_s <= fault.at_s <= at_s + lag_max_s for at_s in focuses), fault


def test_a_failing_schedule_is_shrunk_to_the_faults_that_it_needs() -> None:
    drawn = draw_faults(7, 1.0)
    needed = {*Random(1).sample(drawn, 3)}

    def fails(some: Sequence[Fault]) -> bool:
        return needed <= {*some}

    assert {*shrink(drawn, fails, runs_max=500)} == needed
    assert shrink(drawn, lambda some: True) == []
    assert needed <= {*shrink(drawn, fails, runs_max=5)}


@pytest.mark.release
def test_a_seed_is_the_same_whatever_ran_before_it_in_its_process() -> None:
    second = [*run_all(3, 2, 0.004, [])][1]
    assert second.line == run_apart(4, 0.004, []).line
    assert second.violations == () and second.line["pushes"] > 0


def test_a_batch_of_seeds_is_one_row() -> None:
    batch = [
        Found(
            {"seed": seed, "hours": 0.05, "faults": 3, "pushes": 60, "violations": 0, "trace_sha256": "ab"},
            (),
            (),
            2.0,
            (),
        )
        for seed in (7, 8)
    ]
    row = hour_book.row_of(batch, "c0ffee")
    assert (row["seed"], row["seeds"], row["hours"], row["pushes"], row["cpu_s"]) == ("7", "2", "0.1", "120", "4.0")
    assert row["trace_sha256"] == sha256(b"abab").hexdigest()
    assert hour_book.kind_of(row) == hour_book.kind_of(hour_book.row_of(batch[:1], "c0ffee"))
    assert "0.1 hours, 2 seeds, 6 faults, 120 pushes, 0 violations" in hour_book.summed([row])


def test_a_limit_is_passed_where_twice_the_limit_makes_a_difference() -> None:
    found, state = passed.Passed(), EMPTY
    for n in range(DEFAULT_LIMITS.boots_max + 1):
        assert "boots_max" not in found.names(1.0)
        given = {"name": "w", "boot": f"boot-{n}", "pool": "p", "capacity": 1}
        after, answer = STEPS["register_worker"](state, 1_000 * n, DEFAULT_LIMITS, **given)
        found.on_step(Taken(n, 1_000 * n, "register_worker", given, answer), state, after)
        state = after
    assert "boots_max" in found.names(1.0)
    assert "boots_window_ms" not in found.names(1.0)


def test_boots_that_the_store_has_forgotten_make_no_difference_once_their_window_is_over() -> None:
    given = {"name": "w", "boot": "boot", "pool": "p", "capacity": 1}
    model, _ = STEPS["register_worker"](EMPTY, 1_000, DEFAULT_LIMITS, **given)
    store = replace(model, blame={})
    for now, differs in (
        (1_000 + DEFAULT_LIMITS.boots_window_ms - 1, True),
        (1_000 + DEFAULT_LIMITS.boots_window_ms, False),
    ):
        one, other = (without_old_boots(each, now, DEFAULT_LIMITS) for each in (store, model))
        assert bool(difference(one, other)) is differs


def test_messages_that_the_store_has_forgotten_make_no_difference_after_an_hour() -> None:
    said = (b"1 1 word", b"1 2 word")
    create, model = Create(digital_id="d", fingerprint="f"), EMPTY
    for step, given in (
        ("register_worker", {"name": "w", "boot": "b", "pool": "p", "capacity": 1}),
        ("report", {"worker": "w#1", "boot": "b"}),
        ("place", {"live": "L", "operation": "op", "cause": "create", "create": create, "candidates": ("w#1",)}),
    ):
        model, _ = STEPS[step](model, 1_000, DEFAULT_LIMITS, **given)
    model = replace(model, lives={"L": replace(model.lives["L"], emits=said)})
    for kept, now, differs in (
        ((), 1_000 + EMITS_TTL_MS - 1, True),
        ((), 1_000 + EMITS_TTL_MS, False),
        (said[1:], 1_000 + EMITS_TTL_MS, False),
        (said[:1], 1_000 + EMITS_TTL_MS, True),
    ):
        store = replace(model, lives={"L": replace(model.lives["L"], emits=kept)})
        assert bool(difference(store, without_old_emits(model, store, now))) is differs


def test_the_page_has_a_row_for_every_limit_and_setting() -> None:
    names = passed.all_names()
    assert {*passed.NOT_HERE, *passed.PERIODS} <= {*names}
    rows = {name: {1, 5} if name in passed.PERIODS else set[int]() for name in names}
    assert passed.read_table(f"<!-- passed -->\n{passed.table(rows)}<!-- end of passed -->") == rows
    page = passed.PAGE.read_text()
    assert passed.table(passed.read_table(page)) in page


def test_the_readme_and_the_page_have_the_sums_of_all_runs() -> None:
    rows = hour_book.read_rows()
    assert hour_book.summed(rows) in hour_book.README.read_text(), "make virtual APPEND=1 writes it"
    assert hour_book.clean(rows) in hour_book.PAGE.read_text(), "make virtual APPEND=1 writes it"


def test_the_page_counts_rows_without_a_violation_that_have_enough_faults_and_pushes() -> None:
    row = {"seeds": "1", "hours": "2", "faults": "120", "pushes": "2000", "violations": "0"}
    others = [{**row, "violations": "1"}, {**row, "faults": "119"}, {**row, "pushes": "1999"}]
    assert hour_book.clean([row, *others]).endswith(": 2 hours, 1 seeds, 120 faults, 2,000 pushes.")
