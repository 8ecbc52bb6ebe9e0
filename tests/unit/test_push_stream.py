"""One stream of pushes, without a store, a loop or a socket: events in, actions out."""

from __future__ import annotations

from typing import Any

import pytest

from dhsched.client.models.input import Answer, Push
from dhsched.errors import DhschedError, StoreOverloaded, StoreRefused, StoreUnavailable
from dhsched.infer import push_stream
from dhsched.infer.append_rules import RETRY_S
from dhsched.infer.push_stream import (
    DIRECT,
    ENDING,
    FULL,
    GONE,
    JOINED_BYTES_MAX,
    JOINING,
    OPEN,
    PAUSED,
    SENTENCE_ENDS,
    STORING,
    End,
)
from dhsched.ownership import outcomes as o
from dhsched.store.steps.redis import Append
from dhsched.web.problems import Problem
from tests.unit.pushing import (
    AWAY,
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

# -- items with numbers


def test_numbered_items_go_to_the_store_as_they_come() -> None:
    machine = stream()
    actions = machine.push([*numbered(1, 2), Push(n=3, text="x", boundary=True), Push(n=4, kind="interrupt")], 1.0)
    assert [each.row for each in appends(actions)] == [
        Append("t/a", b"tx1", "p", 1),
        Append("t/a", b"tx2", "p", 2),
        Append("t/a", b"Tx", "p", 3),
        Append("t/a", b"I", "p", 4),
    ]
    assert len(actions) == 4 and machine.in_flight == 4 and line_of(machine).sending is DIRECT
    assert {each.began for each in appends(actions)} == {1.0}


def test_answers_of_one_live_have_the_order_of_its_pushes() -> None:
    machine = stream(live_id="")
    one, two, three, other = appends(machine.push([*numbered(1, 2, 3), *numbered(1, live="b")], 1.0))
    assert machine.append_answered(two, o.Appended(8), 2.0) == []
    assert machine.append_answered(other, o.Appended(5), 2.0) == [Answer("b", 1, seq=5)]
    assert machine.append_answered(one, o.Appended(7), 2.0) == [Answer("a", 1, seq=7), Answer("a", 2, seq=8)]
    assert machine.in_flight == 1
    assert machine.append_answered(three, o.Duplicate(), 2.0) == [Answer("a", 3, duplicate=True)]
    assert machine.in_flight == 0


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (o.NotFound(), "NOT_FOUND"),
        (o.Ended(), "ENDED"),
        (o.Gap(4), "GAP"),
        (o.TooManyPending(9), "TOO_MANY_PENDING"),
        (LOST, "STORE_UNAVAILABLE"),
        (StoreOverloaded("too much"), "BUSY"),
        (DhschedError("what"), "INTERNAL"),
    ],
)
def test_a_numbered_item_is_sent_once_and_what_it_met_is_its_answer(outcome: Any, code: str) -> None:
    machine = stream()
    first, second = appends(machine.push(numbered(5, 6), 1.0))
    actions = machine.append_answered(first, outcome, 1.0)
    assert codes(actions) == [code] and len(actions) == 1 and answers(actions)[0].n == 5
    # Nothing is refused here because of it: the store knows what may follow.
    assert machine.append_answered(second, o.Appended(1), 1.0) == [Answer("a", 6, seq=1)]
    assert len(appends(machine.push(numbered(7), 1.0))) == 1


def test_a_push_that_is_refused_is_answered_in_its_place() -> None:
    machine = stream()
    actions = machine.push([*numbered(1), Push(n=2, text="nine bytes"), *numbered(3)], 1.0)
    one, three = appends(actions)
    assert answers(actions) == [] and machine.in_flight == 3
    actions = machine.append_answered(one, o.Appended(1), 1.0)
    assert codes(actions) == ["", "TOO_LARGE"] and [each.n for each in answers(actions)] == [1, 2]
    assert machine.append_answered(three, o.Appended(2), 1.0) == [Answer("a", 3, seq=2)]
    assert machine.in_flight == 0


@pytest.mark.parametrize(
    ("live_id", "push"),
    [("", Push(text="x")), ("a", Push(live="b", text="x")), ("", Push(token="x"))],
)
def test_a_push_without_a_live_of_its_stream_is_refused_at_once(live_id: str, push: Push) -> None:
    machine = stream(live_id)
    actions = machine.push([push], 1.0)
    assert codes(actions) == ["BAD_REQUEST"] and len(actions) == 1 and machine.in_flight == 0
    assert "name the live" in str(answers(actions)[0].problem)


def test_a_number_needs_a_producer() -> None:
    machine = stream(producer="")
    actions = machine.push(numbered(1), 1.0)
    assert codes(actions) == ["BAD_REQUEST"] and len(actions) == 1 and machine.in_flight == 0


def test_one_stream_serves_so_many_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_stream, "LINES_MAX", 2)
    machine = stream(live_id="")
    actions = machine.push([push for live in "abca" for push in numbered(1, live=live)], 1.0)
    assert [each.row.live for each in appends(actions)] == ["t/a", "t/b", "t/a"]
    assert codes(actions) == ["BUSY"] and answers(actions)[0].live == "c"


def test_a_full_store_refuses_items_and_tokens_in_their_place() -> None:
    machine = stream()
    item = only_append(machine.push(numbered(1), 1.0))
    full = Problem("STORE_FULL", "full")
    assert machine.push([*numbered(2), *tokens("x.")], 1.0, full) == []
    actions = machine.append_answered(item, o.Appended(1), 1.0)
    assert codes(actions) == ["", "STORE_FULL", "STORE_FULL"] and appends(actions) == []
    assert len(appends(machine.push(numbered(2), 1.0))) == 1


def test_a_tenant_over_its_quota_is_refused_items_and_tokens_and_no_interrupt() -> None:
    machine = stream()
    over = Problem("QUOTA", "over")
    actions = machine.push([*numbered(1), *tokens("x."), Push(n=1, kind="interrupt")], 1.0, None, over)
    assert codes(actions) == ["QUOTA", "QUOTA"]
    assert only_append(actions).row == Append("t/a", b"I", "p", 1)


# -- tokens


@pytest.mark.parametrize("end", [*SENTENCE_ENDS, ".  "])
def test_tokens_are_joined_up_to_the_end_of_a_sentence(end: str) -> None:
    machine = stream()
    actions = machine.push(tokens("Hel", "lo", end, " How"), 1.0)
    item = only_append(actions)
    assert item.row == Append("t/a", b"THello" + end.encode(), request="r1")
    actions = machine.append_answered(item, o.Appended(1), 1.01)
    assert answers(actions) == [Answer("a", tokens=3, seq=1)] and appends(actions) == []
    assert line_of(machine).sending is JOINING


def test_a_token_waits_for_others_for_so_long_at_most() -> None:
    machine = stream()
    assert timers(machine.push(tokens("Hel"), 1.0)) == [1.0 + JOIN_S]
    assert machine.push(tokens("lo"), 1.03) == []  # The timer is for the first token.
    assert line_of(machine).sending is JOINING
    item = only_append(machine.timer_fired(line_of(machine), 1.0 + JOIN_S))
    assert item.row.item == b"tHello" and item.began == 1.0 and line_of(machine).sending is STORING
    assert answers(machine.append_answered(item, o.Appended(1), 1.1)) == [Answer("a", tokens=2, seq=1)]
    assert machine._lines == {}


def test_a_timer_that_fires_early_is_armed_again() -> None:
    machine = stream()
    machine.push(tokens("Hel"), 1.0)
    assert timers(machine.timer_fired(line_of(machine), 1.039)) == [1.0 + JOIN_S]
    assert len(appends(machine.timer_fired(line_of(machine), 1.0 + JOIN_S))) == 1


def test_a_timer_for_what_is_under_way_does_nothing() -> None:
    machine = stream()
    machine.push(tokens("Hel", "lo."), 1.0)
    assert line_of(machine).sending is STORING
    assert machine.timer_fired(line_of(machine), 1.0 + JOIN_S) == []
    assert line_of(machine).sending is STORING


def test_a_token_after_the_time_is_over_begins_another_item() -> None:
    machine = stream()
    machine.push(tokens("old"), 1.0)
    item = only_append(machine.push(tokens("new"), 1.0 + JOIN_S))
    assert item.row.item == b"told"
    assert timers(machine.append_answered(item, o.Appended(1), 1.05)) == []  # One is armed: it asks again.
    assert timers(machine.timer_fired(line_of(machine), 1.06)) == [1.0 + 2 * JOIN_S]
    assert only_append(machine.timer_fired(line_of(machine), 1.08)).row.item == b"tnew"


def test_a_joined_item_is_no_longer_than_its_limit() -> None:
    machine = stream()
    most = "x" * (JOINED_BYTES_MAX - 1)
    assert appends(machine.push(tokens(most, "y"), 1.0)) == []
    item = only_append(machine.push(tokens("z"), 1.0))
    assert item.row.item == b"t" + most.encode() + b"y"
    machine.timer_fired(line_of(machine), 2.0)
    assert only_append(machine.append_answered(item, o.Appended(1), 2.0)).row.item == b"tz"


def test_what_comes_while_an_item_is_stored_is_joined_behind_it() -> None:
    machine = stream()
    first = only_append(machine.push(tokens("One."), 1.0))
    assert machine.push(tokens("T", "w"), 1.01) == []
    assert machine.push(tokens("o."), 1.02) == []
    actions = machine.append_answered(first, o.Appended(1), 1.03)
    assert only_append(actions).row == Append("t/a", b"TTwo.", request="r2")
    assert answers(actions) == [Answer("a", tokens=1, seq=1)]


def test_what_is_behind_an_item_that_took_long_is_sent_at_once() -> None:
    machine = stream()
    first = only_append(machine.push(tokens("One."), 1.0))
    machine.push(tokens("Two"), 1.01)
    assert only_append(machine.append_answered(first, o.Appended(1), 2.0)).row.item == b"tTwo"


def test_nothing_overtakes_a_token() -> None:
    machine = stream()
    actions = machine.push([*tokens("Hel"), Push(n=1, text="x", boundary=True), *tokens("lo"), Push(text="y")], 1.0)
    got = []
    item = only_append(actions)
    for seq in range(1, 5):
        got.append(item.row)
        actions = machine.append_answered(item, o.Appended(seq), 1.0)
        if seq < 4:
            item = only_append(actions)
        assert [each.tokens for each in answers(actions)] == [[1], [1], [2], [2]][seq - 1]
    assert got == [
        Append("t/a", b"tHel", request="r1"),
        Append("t/a", b"Tx", "p", 1),
        Append("t/a", b"tlo", request="r2"),
        Append("t/a", b"ty", request="r3"),
    ]
    # Nothing is in flight, so there is nothing to overtake; the tokens are counted on.
    two, three = appends(machine.push(numbered(2, 3), 1.0))
    assert machine.append_answered(two, o.Appended(5), 1.0) == [Answer("a", 2, tokens=2, seq=5)]
    assert machine.append_answered(three, o.Appended(6), 1.0) == [Answer("a", 3, tokens=2, seq=6)]


def test_a_token_is_not_joined_with_an_item() -> None:
    machine = stream()
    item = only_append(machine.push([*tokens("One."), Push(text="x"), *tokens("y.")], 1.0))
    second = only_append(machine.append_answered(item, o.Appended(1), 1.0))
    assert second.row.item == b"tx"
    assert only_append(machine.append_answered(second, o.Appended(1), 1.0)).row.item == b"Ty."


def test_items_without_a_number_go_one_at_a_time() -> None:
    machine = stream()
    first = only_append(machine.push([Push(text="x"), Push(text="y", boundary=True)], 1.0))
    assert first.row == Append("t/a", b"tx", request="r1")
    actions = machine.append_answered(first, o.Appended(1), 1.0)
    assert answers(actions) == [Answer("a", seq=1)]
    assert only_append(actions).row == Append("t/a", b"Ty", request="r2")


def test_a_numbered_item_that_is_answered_late_moves_no_other() -> None:
    machine = stream()
    direct, joined = appends(machine.push([*numbered(1), *tokens("x.", "y.")], 1.0))
    assert machine.append_answered(direct, o.Appended(1), 1.0) == [Answer("a", 1, seq=1)]
    assert line_of(machine).sending is STORING
    assert only_append(machine.append_answered(joined, o.Appended(2), 1.0)).row.item == b"Ty."


def test_tokens_wait_for_no_numbered_item_and_are_answered_behind_it() -> None:
    machine = stream()
    direct, joined = appends(machine.push([*numbered(1), *tokens("x.")], 1.0))
    assert answers(machine.append_answered(joined, o.Appended(2), 1.0)) == []
    actions = machine.append_answered(direct, o.Appended(1), 1.0)
    assert actions == [Answer("a", 1, seq=1), Answer("a", tokens=1, seq=2)]


def test_lives_do_not_wait_for_each_other() -> None:
    machine = stream(live_id="")
    actions = machine.push([Push(live=live, token="x.") for live in "ab"], 1.0)
    assert [each.row.live for each in appends(actions)] == ["t/a", "t/b"]
    assert [
        each.tokens for item in appends(actions) for each in answers(machine.append_answered(item, o.Ended(), 1))
    ] == [
        1,
        1,
    ]


# -- failures of what has a request id


def test_an_item_whose_outcome_is_unknown_is_sent_again_as_it_was() -> None:
    machine = stream()
    item = only_append(machine.push([*tokens("One."), Push(text="two")], 1.0))
    row = item.row
    actions = machine.append_answered(item, LOST, 1.2)
    assert timers(actions) == [1.2 + RETRY_S] and len(actions) == 1 and line_of(machine).sending is PAUSED
    assert machine.push(tokens("x."), 1.21) == []
    assert timers(machine.timer_fired(line_of(machine), 1.25)) == [1.2 + RETRY_S]  # An old one.
    again = only_append(machine.timer_fired(line_of(machine), 1.2 + RETRY_S))
    assert again is item and again.row == row and line_of(machine).sending is STORING
    actions = machine.append_answered(again, o.Duplicate(), 1.4)
    assert answers(actions) == [Answer("a", tokens=1, duplicate=True)]
    assert only_append(actions).row.item == b"ttwo"


@pytest.mark.parametrize(("errors", "unknown"), [([LOST, AWAY], True), ([AWAY, AWAY], False), ([AWAY, LOST], True)])
def test_it_is_given_up_at_its_deadline_and_the_next_one_goes_on(errors: list[StoreUnavailable], unknown: bool) -> None:
    machine = stream()
    item = only_append(machine.push(tokens("One.", "Two."), 1.0))
    machine.append_answered(item, errors[0], 1.0)
    machine.timer_fired(line_of(machine), 1.1)
    actions = machine.append_answered(item, errors[1], 1.0 + DEADLINE_S - RETRY_S)
    assert codes(actions) == ["STORE_UNAVAILABLE"]
    (answer,) = answers(actions)
    assert answer.problem is not None and answer.problem.get("unknown", False) is unknown and answer.tokens == 0
    second = only_append(actions)
    assert second.row.item == b"TTwo."
    # Its own time begins now.
    assert timers(machine.append_answered(second, LOST, 2.0)) == [2.0 + RETRY_S]


@pytest.mark.parametrize("error", [StoreRefused("no", code="OOM"), StoreOverloaded("too much")])
def test_what_the_store_refused_is_not_sent_again(error: DhschedError) -> None:
    machine = stream()
    item = only_append(machine.push(tokens("One.", "Two."), 1.0))
    actions = machine.append_answered(item, error, 1.0)
    assert len(answers(actions)) == 1 and timers(actions) == [] and only_append(actions).row.item == b"TTwo."


def test_a_numbered_item_behind_tokens_is_sent_once() -> None:
    machine = stream()
    first = only_append(machine.push([*tokens("x."), *numbered(1)], 1.0))
    second = only_append(machine.append_answered(first, o.Appended(1), 1.0))
    actions = machine.append_answered(second, LOST, 1.0)
    assert codes(actions) == ["STORE_UNAVAILABLE"] and timers(actions) == []
    assert answers(actions)[0].tokens == 0


# -- the connection


def test_a_client_is_held_back_while_too_much_is_in_flight() -> None:
    machine = stream(in_flight_max=2)
    first, _ = appends(machine.push(numbered(1, 2), 1.0))
    assert machine.held_back
    machine.append_answered(first, o.Appended(1), 1.0)
    assert not machine.held_back


def test_a_client_is_held_back_while_it_does_not_read() -> None:
    machine = stream()
    machine.drained()
    assert machine.reading is OPEN and not machine.held_back
    machine.full()
    assert machine.reading is FULL and machine.held_back
    machine.drained()
    assert machine.reading is OPEN and not machine.held_back


def test_a_frame_that_cannot_be_read_is_answered() -> None:
    machine = stream()
    actions = machine.frame_refused(Problem("BAD_REQUEST", "what"))
    assert codes(actions) == ["BAD_REQUEST"] and len(actions) == 1 and machine.reading is OPEN
    assert len(appends(machine.push(numbered(1), 1.0))) == 1


def test_a_frame_that_is_too_large_ends_the_connection() -> None:
    machine = stream()
    item = only_append(machine.push(numbered(1), 1.0))
    problem = Problem("TOO_LARGE", "what")
    answer, end = machine.frame_refused(problem)
    assert isinstance(answer, Answer) and answer.live == "a" and end == End(problem) and machine.reading is ENDING
    machine.full()
    machine.drained()
    assert machine.reading is ENDING and not machine.held_back
    assert machine.push(numbered(2), 1.0) == [] and machine.frame_refused(problem) == []
    assert machine.append_answered(item, o.Appended(1), 1.0) == [Answer("a", 1, seq=1)]


def test_a_connection_that_is_gone_leads_to_nothing() -> None:
    machine = stream(in_flight_max=1)
    item = only_append(machine.push(tokens("One.", "Two"), 1.0))
    machine.closed()
    machine.full()
    assert machine.reading is GONE and not machine.held_back
    assert machine.append_answered(item, o.Appended(1), 1.0) == []
    assert machine.timer_fired(line_of(machine), 9.0) == []
    assert machine.push(numbered(2), 1.0) == [] and machine.frame_refused(Problem("TOO_LARGE", "what")) == []


def test_what_is_being_joined_is_lost_with_its_connection() -> None:
    machine = stream()
    machine.push(tokens("Hel"), 1.0)
    machine.closed()
    assert machine.timer_fired(line_of(machine), 9.0) == []
