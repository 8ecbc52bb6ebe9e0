"""The lines of a stream: the order of items without a number, and what is kept of a live with nothing in flight."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from dhsched.client.models.input import Answer, Push
from dhsched.errors import StoreRefused
from dhsched.infer import push_stream
from dhsched.infer.append_rules import RETRY_S
from dhsched.infer.push_stream import DIRECT, STORING
from dhsched.ownership import outcomes as o
from dhsched.store.steps.redis import Append
from tests.unit.pushing import (
    DEADLINE_S,
    JOIN_S,
    LOST,
    answers,
    appends,
    codes,
    line_of,
    numbered,
    only_append,
    stream,
    timers,
    tokens,
)


def test_an_item_without_a_number_goes_straight_to_the_store_when_nothing_is_in_flight() -> None:
    machine = stream()
    for seq in range(1, 4):
        item = only_append(machine.push([Push(text="x", boundary=True)], 1.0))
        assert item.row == Append("t/a", b"Tx", request=f"r{seq}") and line_of(machine).sending is STORING
        assert machine.append_answered(item, o.Appended(seq), 1.0) == [Answer("a", seq=seq)]


def test_items_without_a_number_wait_for_no_numbered_item_and_later_ones_wait_for_them() -> None:
    machine = stream()
    one, plain = appends(machine.push([*numbered(1), Push(text="x"), *numbered(2)], 1.0))
    assert (one.row.n, plain.row.request) == (1, "r1")
    two = only_append(machine.append_answered(plain, o.Appended(2), 1.0))
    assert two.row.n == 2
    # Item 1 is still in flight and nothing without a number is: the next ones go at once.
    (three,) = appends(machine.append_answered(two, o.Appended(3), 1.0) + machine.push(numbered(3), 1.0))
    assert three.row.n == 3 and line_of(machine).sending is DIRECT
    assert [each.n for each in answers(machine.append_answered(one, o.Appended(1), 1.0))] == [1, 0, 2]


def test_lives_on_one_stream_keep_their_order_whatever_the_store_answers_first() -> None:
    machine = stream(live_id="")
    pushes = [Push(live=live, text=f"{live}{n}") for n in range(5) for live in "abc"]
    under_way = appends(machine.push(pushes, 1.0))
    assert len(under_way) == 3
    stored: dict[str, list[bytes]] = {"t/a": [], "t/b": [], "t/c": []}
    while under_way:
        item = under_way.pop()  # The last first.
        stored[item.row.live].append(item.row.item)
        actions = machine.append_answered(item, o.Appended(1), 1.0)
        assert len(answers(actions)) == 1
        under_way += appends(actions)
        assert len({each.row.live for each in under_way}) == len(under_way)
    assert stored == {f"t/{live}": [f"t{live}{n}".encode() for n in range(5)] for live in "abc"}
    assert machine._lines == {} and machine.in_flight == 0


@pytest.mark.parametrize("outcome", [o.Ended(), o.TooManyPending(9), StoreRefused("no", code="OOM"), LOST])
def test_after_an_item_that_failed_the_items_behind_it_go_on_in_order(outcome: Any) -> None:
    machine = stream()
    item = only_append(machine.push([Push(text="x"), Push(text="y"), *numbered(1)], 1.0))
    actions = machine.append_answered(item, outcome, 1.0 + DEADLINE_S)
    assert len(answers(actions)) == 1 and codes(actions) != [""]
    second = only_append(actions)
    assert second.row == Append("t/a", b"ty", request="r2")
    third = only_append(machine.append_answered(second, o.Appended(1), 3.0))
    assert machine.append_answered(third, o.Appended(2), 3.0) == [Answer("a", 1, seq=2)]
    assert machine._lines == {}


# -- what is kept


@pytest.mark.parametrize("pushes", [numbered(1, 2), [Push(text="x"), Push(text="y")], tokens("x.", "y", "z.")])
def test_nothing_is_kept_of_a_live_that_has_nothing_in_flight(pushes: list[Push]) -> None:
    machine = stream()
    actions = machine.push(pushes, 1.0)
    assert len(machine._lines) == 1
    while found := appends(actions):
        actions = [each for item in found for each in machine.append_answered(item, o.Appended(1), 1.0)]
    assert machine._lines == {} and machine.in_flight == 0


def test_a_push_leaves_no_object_behind_not_even_for_the_garbage_collector() -> None:
    machine = stream(live_id="")
    before = len(gc.get_objects())
    for live in range(500):
        item = only_append(machine.push([Push(live=f"l{live}", text="x")], 1.0))
        machine.append_answered(item, o.Appended(1), 1.0)
    assert len(gc.get_objects()) - before < 50


def test_a_refused_push_keeps_nothing() -> None:
    machine = stream()
    assert codes(machine.push([Push(text="nine bytes")], 1.0)) == ["TOO_LARGE"]
    assert machine._lines == {}


def test_a_line_stays_until_its_timer_has_fired_so_that_it_has_one_timer() -> None:
    machine = stream()
    item = only_append(actions := machine.push(tokens("a", "."), 1.0))
    assert timers(actions) == [1.0 + JOIN_S]
    machine.append_answered(item, o.Appended(1), 1.0)
    line = line_of(machine)
    assert timers(machine.push(tokens("b"), 1.01)) == []  # The timer of the first sentence asks again.
    assert timers(machine.timer_fired(line, 1.0 + JOIN_S)) == [1.01 + JOIN_S]
    item = only_append(machine.timer_fired(line, 1.01 + JOIN_S))
    machine.append_answered(item, o.Appended(2), 1.06)
    assert machine._lines == {}
    machine.push(tokens("c", "."), 2.0)
    line = line_of(machine)
    assert line.head is not None
    machine.append_answered(line.head, o.Appended(3), 2.0)
    assert machine._lines == {"a": line}
    assert machine.timer_fired(line, 2.0 + JOIN_S) == [] and machine._lines == {}


def test_the_timer_of_a_line_that_was_dropped_changes_nothing() -> None:
    machine = stream()
    first = only_append(machine.push(tokens("x."), 1.0))
    old = line_of(machine)
    machine.append_answered(first, LOST, 1.0)
    machine.timer_fired(old, 1.0 + RETRY_S)
    machine.append_answered(first, o.Appended(1), 1.2)
    assert machine._lines == {}
    assert machine.timer_fired(old, 1.3) == []
    second = only_append(machine.push([Push(text="x")], 1.4))
    assert machine.timer_fired(old, 1.5) == []
    assert machine.append_answered(second, o.Appended(2), 1.6) == [Answer("a", tokens=1, seq=2)]
    assert machine._lines == {}


def test_a_refused_push_between_tokens_does_not_part_them() -> None:
    machine = stream()
    item = only_append(machine.push(tokens("One."), 1.0))
    machine.push([*tokens("T"), Push(text="nine bytes"), *tokens("wo."), Push(text="nine bytes"), Push(text="x")], 1.0)
    actions = machine.append_answered(item, o.Appended(1), 1.0)
    second = only_append(actions)
    assert second.row.item == b"TTwo." and codes(actions) == [""]
    actions = machine.append_answered(second, o.Appended(2), 1.0)
    assert only_append(actions).row.item == b"tx" and codes(actions) == ["", "TOO_LARGE", "TOO_LARGE"]


def test_tokens_are_counted_on_after_a_pause() -> None:
    machine = stream()
    for total in (1, 2, 3):
        item = only_append(machine.push(tokens("x."), 1.0))
        assert machine.append_answered(item, o.Appended(total), 1.0) == [Answer("a", tokens=total, seq=total)]
    item = only_append(machine.push([Push(text="x")], 1.0))
    assert machine.append_answered(item, o.Appended(4), 1.0) == [Answer("a", tokens=3, seq=4)]


def test_tokens_of_so_many_lives_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_stream, "LINES_MAX", 2)
    machine = stream(live_id="")
    for live in "abcab":
        actions = machine.push([Push(live=live, token="x.")], 1.0)
        for item in appends(actions):
            machine.append_answered(item, o.Appended(1), 1.0)
        assert codes(actions) == (["BUSY"] if live == "c" else [])
    assert machine._lines == {}
    assert len(appends(machine.push([Push(live="c", text="x")], 1.0))) == 1


def test_what_waits_behind_an_item_is_lost_with_the_connection_and_keeps_nothing_under_way() -> None:
    machine = stream()
    item = only_append(machine.push([Push(text="x"), Push(text="y")], 1.0))
    machine.closed()
    assert machine.append_answered(item, o.Appended(1), 1.0) == []
    assert machine.push([Push(text="z")], 1.0) == []
