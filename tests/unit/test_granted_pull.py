"""One granted pull, without a store, a loop or a connection: events in, steps out."""

from __future__ import annotations

from typing import Any

import pytest

from dhsched.errors import StoreUnavailable
from dhsched.infer.granted_pull import (
    ACK_STEP,
    AGAIN,
    BLOCKED,
    DROP,
    DROP_STEP,
    GONE,
    IDLE,
    NO_STEP,
    NOTHING,
    QUEUED,
    RELEASE,
    RELEASE_STEP,
    SENT,
    GrantedPull,
    Serving,
)
from dhsched.links import messages
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import UNMARKED
from dhsched.ownership.journal import Change
from dhsched.store.steps.redis import Ack, Release
from dhsched.types import Generation

LOST = StoreUnavailable("no answer", unknown=True)


def pull_in(serving: Serving, *, after: int = 0) -> GrantedPull[None]:
    """A pull of generation A#1@3 that has come to a state by the events that lead to it."""
    pull: GrantedPull[None] = GrantedPull(None, "t/a", "A#1", 3, 7, after, UNMARKED)
    if serving is GONE:
        pull.dropped()
    elif serving is BLOCKED:
        pull.full()
    elif serving is not QUEUED:
        pull.release()
        if serving is IDLE:
            pull.release_answered(o.Nothing())
            pull.at_window = False
        elif serving is AGAIN:
            pull.due()
    assert pull.serving is serving
    return pull


def items(first: int, count: int, *, more: bool = False) -> o.Items:
    return o.Items(first, tuple(b"t" + f"{first + n:08}".encode() + b"x" for n in range(count)), more)


def sent(found: o.Items) -> messages.Items:
    return messages.Items("t/a", 3, 7, found.first, [*found.items])


@pytest.mark.parametrize(
    ("before", "step", "then"),
    [
        (IDLE, RELEASE_STEP, QUEUED),
        (BLOCKED, NO_STEP, BLOCKED),
        (QUEUED, NO_STEP, QUEUED),
        (SENT, NO_STEP, AGAIN),
        (AGAIN, NO_STEP, AGAIN),
        (GONE, NO_STEP, GONE),
    ],
)
def test_what_is_due_is_released_once(before: Serving, step: Any, then: Serving) -> None:
    pull = pull_in(before)
    assert pull.due() == step and pull.serving is then


@pytest.mark.parametrize("before", Serving)
def test_only_a_pull_that_is_blocked_goes_on_when_the_connection_has_drained(before: Serving) -> None:
    pull = pull_in(before)
    assert pull.drained() == (RELEASE_STEP if before is BLOCKED else NO_STEP)
    assert pull.serving is (QUEUED if before is BLOCKED else before)


@pytest.mark.parametrize(
    ("before", "do", "then"), [(SENT, NOTHING, IDLE), (AGAIN, RELEASE, QUEUED), (GONE, NOTHING, GONE)]
)
def test_an_answer_is_passed_on_and_what_is_due_again_follows(before: Serving, do: Any, then: Serving) -> None:
    pull, found = pull_in(before), items(1, 2)
    assert pull.release_answered(found) == (do, sent(found))
    assert pull.serving is then and (pull.after, pull.mark) == (2, b"00000002")
    assert pull.release() == Release("t/a", b"A#1 3 7 2 00000002")


@pytest.mark.parametrize(("before", "step"), [(SENT, RELEASE_STEP), (AGAIN, RELEASE_STEP), (GONE, NO_STEP)])
def test_a_release_that_failed_is_due_again_from_where_it_was(before: Serving, step: Any) -> None:
    pull = pull_in(before, after=5)
    pull.append_answered(o.Appended(6))
    assert pull.release_failed() == step
    assert pull.serving is (GONE if before is GONE else QUEUED)
    assert pull.release() == Release("t/a", b"A#1 3 7 5 00000000")
    # Nothing is left of what was due meanwhile: the repeated release was sent after it.
    assert pull.release_answered(o.Nothing()) == NO_STEP


# -- own appends


@pytest.mark.parametrize("before", [SENT, IDLE])
def test_an_item_that_was_stored_behind_its_release_is_asked_for_once(before: Serving) -> None:
    pull = pull_in(before, after=5)
    if before is SENT:
        assert pull.append_answered(o.Appended(6)) == NO_STEP
        assert pull.release_answered(o.Nothing()) == RELEASE_STEP
    else:
        assert pull.append_answered(o.Appended(6)) == RELEASE_STEP
    pull.release()
    # A hold keeps the item back.
    assert pull.release_answered(o.Nothing()) == NO_STEP and pull.serving is IDLE


def test_items_that_the_release_under_way_brings_are_not_asked_for() -> None:
    pull = pull_in(SENT)
    assert pull.append_answered(o.Appended(2)) == NO_STEP
    assert pull.append_answered(o.Appended(1)) == NO_STEP
    assert pull.release_answered(items(1, 2))[0] is NOTHING
    assert pull.append_answered(o.Appended(2)) == NO_STEP and pull.serving is IDLE


def test_an_own_append_goes_through_when_nothing_else_is_due() -> None:
    pull = pull_in(IDLE, after=4)
    assert pull.through() == b"A#1 3 7 4 00000000" and pull.serving is SENT
    assert pull.through() == b"", "one at a time"
    step = pull.through_answered(b"thello", o.Appended(5, b"deadbeef"))
    assert step == (NOTHING, messages.Items("t/a", 3, 7, 5, [b"tdeadbeefhello"]))
    assert (pull.serving, pull.after, pull.mark, pull.at_window) == (IDLE, 5, b"deadbeef", False)
    assert pull.through() == b"A#1 3 7 5 deadbeef"


def test_a_mark_may_be_any_bytes() -> None:
    """A Worker sends the mark of its pull, and the store does not compare it below what is acked."""
    pull = pull_in(IDLE, after=4)
    pull.mark = b"\xff \x00\xffmark"
    assert pull.through() == b"A#1 3 7 4 \xff \x00\xffmark"


@pytest.mark.parametrize("before", [BLOCKED, QUEUED, SENT, AGAIN, GONE])
def test_an_own_append_does_not_pass_a_release(before: Serving) -> None:
    pull = pull_in(before, after=4)
    assert pull.through() == b"" and pull.serving is before


def test_the_first_item_and_what_is_behind_the_window_are_released_by_a_release() -> None:
    assert pull_in(IDLE).through() == b""
    pull = pull_in(SENT)
    pull.release_answered(items(1, 2, more=True))
    assert pull.serving is IDLE and pull.through() == b""


@pytest.mark.parametrize("outcome", [o.Appended(5), o.Duplicate(), o.Gap(3), o.TooManyPending(9), LOST])
def test_an_append_that_released_nothing_is_followed_by_a_release(outcome: Any) -> None:
    pull = pull_in(IDLE, after=4)
    pull.through()
    assert pull.through_answered(b"thello", outcome) == RELEASE_STEP
    assert (pull.serving, pull.after) == (QUEUED, 4)


def test_what_is_due_while_an_append_goes_through_is_released_behind_it() -> None:
    pull = pull_in(IDLE, after=4)
    pull.through()
    assert pull.due() == NO_STEP and pull.serving is AGAIN
    do, message = pull.through_answered(b"thello", o.Appended(5, b"deadbeef"))
    assert do is RELEASE and message is not None and pull.serving is QUEUED


def test_an_append_that_went_through_to_a_pull_that_is_gone_asks_for_nothing() -> None:
    for outcome, message in ((o.Appended(5), None), (o.Appended(5, b"deadbeef"), messages.Items)):
        pull = pull_in(IDLE, after=4)
        pull.through()
        pull.dropped()
        do, sent_on = pull.through_answered(b"thello", outcome)
        assert do is NOTHING and isinstance(sent_on, message or type(None)) and pull.serving is GONE


def test_of_two_items_stored_meanwhile_the_later_one_is_expected() -> None:
    pull = pull_in(SENT)
    pull.append_answered(o.Appended(2))
    pull.append_answered(o.Appended(1))
    assert pull.release_answered(items(1, 1))[0] is RELEASE


@pytest.mark.parametrize("before", [BLOCKED, QUEUED, AGAIN])
def test_a_release_that_is_still_to_be_sent_finds_what_is_stored(before: Serving) -> None:
    pull = pull_in(before)
    assert pull.append_answered(o.Appended(1)) == NO_STEP and pull.serving is before
    assert pull.expects == 0


@pytest.mark.parametrize(("before", "then"), [(IDLE, QUEUED), (SENT, AGAIN), (QUEUED, QUEUED)])
def test_an_append_that_nobody_answered_may_have_run(before: Serving, then: Serving) -> None:
    pull = pull_in(before)
    assert pull.append_answered(LOST) == (RELEASE_STEP if before is IDLE else NO_STEP)
    assert pull.serving is then


@pytest.mark.parametrize("outcome", [o.Duplicate(), o.Gap(3), o.NotFound(), o.TooManyPending(9)])
def test_an_append_that_stored_nothing_makes_nothing_due(outcome: o.AppendOutcome) -> None:
    pull = pull_in(IDLE)
    assert pull.append_answered(outcome) == NO_STEP and pull.serving is IDLE


# -- the window


@pytest.mark.parametrize(
    ("answers", "acked", "at_window"),
    [
        ([items(1, 4, more=True)], 0, True),
        ([items(1, 4)], 0, False),
        ([items(1, 1, more=True)], 0, True),  # The window is 1 for what the last generation may have died of.
        ([items(1, 1)], 0, False),
        ([items(1, 2, more=True), items(3, 1)], 0, False),
        ([items(1, 3), items(4, 1, more=True)], 0, True),
        ([items(1, 2), o.Nothing()], 0, True),
        ([items(1, 2), o.Nothing()], 2, False),
        ([o.Nothing()], 0, False),
    ],
)
def test_an_ack_makes_a_release_due_when_the_last_one_stopped_at_the_window(
    answers: list[o.ReleaseOutcome], acked: int, at_window: bool
) -> None:
    pull = pull_in(IDLE)
    pull.acked = acked
    for answer in answers:
        pull.due()
        pull.release()
        assert pull.release_answered(answer)[0] is NOTHING
    assert pull.ack_answered(pull.ack_sent(), o.Acked(acked, False)) == (RELEASE_STEP if at_window else NO_STEP)


def test_an_ack_cursor_never_goes_back() -> None:
    pull = pull_in(IDLE, after=9)
    for acked in (7, 3):
        pull.ack_answered(pull.ack_sent(), o.Acked(acked, False))
    assert pull.acked == 7


# -- acks


def ack(n: int, mark: bytes, saved: bytes | None = None, journal: Change | None = None) -> Ack:
    return Ack("t/a", "A#1", 3, n, saved, mark, journal)


def test_what_was_written_to_the_journal_goes_with_the_ack_once_and_in_order() -> None:
    pull = pull_in(IDLE, after=9)
    pull.ack(5, b"5", None, Change(0, 1, (b"a",)))
    pull.ack(6, b"6", None)
    pull.ack(7, b"7", b"seven", Change(0, 2, (b"b", b"c")))
    assert pull.ack_bytes == len(b"abcseven")
    written = pull.ack_sent()
    assert written == ack(7, b"7", b"seven", Change(0, 1, (b"a", b"b", b"c")))
    assert pull.ack_bytes == 0
    pull.ack(8, b"8", None)
    assert pull.ack_sent() == ack(8, b"8"), "what was sent is not sent with the next one"
    pull.ack(8, b"8", None, Change(2, 4, (b"d",)))
    assert pull.ack_failed(written) == NO_STEP
    assert pull.ack_sent() == ack(8, b"8", b"seven", Change(2, 3, (b"c", b"d")))
    pull.ack(9, b"9", None)
    assert pull.ack_failed(written) == NO_STEP
    assert pull.ack_sent() == ack(9, b"9", b"seven", written.journal)


@pytest.mark.parametrize(("outcome", "code"), [(o.Gap(3), "GAP"), (o.JournalFull(9), "JOURNAL_FULL")])
def test_a_worker_is_told_that_its_journal_was_refused(outcome: o.Gap | o.JournalFull, code: str) -> None:
    pull = pull_in(IDLE, after=9)
    pull.ack(5, b"5", None, Change(0, 7, (b"a",)))
    do, problem = pull.ack_answered(pull.ack_sent(), outcome)
    assert do is NOTHING and isinstance(problem, messages.Problem)
    assert (problem.code, problem.live, problem.epoch) == (code, "t/a", 3)
    assert pull.acked == 0 and pull.serving is IDLE


def test_a_queued_ack_is_replaced_by_a_later_one_and_keeps_the_latest_state() -> None:
    pull = pull_in(IDLE, after=9)
    assert pull.ack(5, b"5", b"five") == ACK_STEP
    assert pull.ack(7, b"7", None) == NO_STEP
    assert pull.ack(6, b"6", b"six") == NO_STEP
    assert pull.ack_sent() == ack(7, b"7", b"six")


def test_an_ack_that_was_sent_does_not_stand_for_a_later_one() -> None:
    pull = pull_in(IDLE, after=9)
    pull.ack(7, b"7", b"seven")
    refused = pull.ack_sent()
    assert pull.ack_answered(refused, o.Ahead(4))[0] is NOTHING
    assert pull.ack(4, b"4", None) == ACK_STEP
    assert pull.ack_sent() == ack(4, b"4")


def test_a_failed_ack_is_merged_with_what_was_asked_meanwhile() -> None:
    pull = pull_in(IDLE, after=9)
    pull.ack(5, b"5", b"five")
    failed = pull.ack_sent()
    assert pull.ack_failed(failed) == ACK_STEP
    assert pull.ack_sent() == failed
    pull.ack(7, b"7", None)
    assert pull.ack_failed(failed) == NO_STEP
    assert pull.ack_sent() == ack(7, b"7", b"five")
    pull.ack(7, b"7", b"seven")
    assert pull.ack_failed(failed) == NO_STEP
    assert pull.ack_sent() == ack(7, b"7", b"seven")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_acks_that_failed_the_state_and_the_journal_of_the_later_one_are_kept(order: tuple[int, int]) -> None:
    pull = pull_in(IDLE, after=9)
    sent = []
    for n, state in ((5, b"five"), (6, b"six")):
        pull.ack(n, b"%d" % n, state, Change(0, n, (state,)))
        sent.append(pull.ack_sent())
    pull.ack(7, b"7", None)
    for each in order:
        assert pull.ack_failed(sent[each]) == NO_STEP
    assert pull.ack_sent() == ack(7, b"7", b"six", Change(0, 5, (b"five", b"six")))


def test_a_failed_ack_goes_on_with_a_later_one_and_the_newest_state_that_may_be_on_its_way() -> None:
    pull = pull_in(IDLE, after=9)
    pull.ack(5, b"5", b"five")
    first = pull.ack_sent()
    pull.ack(6, b"6", b"six")
    second = pull.ack_sent()
    pull.ack(7, b"7", None)
    assert pull.ack_failed(first) == NO_STEP
    assert pull.ack_sent() == ack(7, b"7", b"six"), "the state of item 7 is that of item 6"
    assert pull.ack_failed(second) == ACK_STEP
    assert pull.ack_sent() == second


def test_a_failed_ack_that_is_sent_alone_keeps_its_state_although_a_newer_one_is_on_its_way() -> None:
    pull = pull_in(IDLE, after=9)
    pull.ack(5, b"5", b"five")
    first = pull.ack_sent()
    pull.ack(6, b"6", b"six", Change(0, 2, (b"b",)))
    second = pull.ack_sent()
    assert pull.ack_failed(first) == ACK_STEP
    assert pull.ack_sent() == first, "the newer one may yet be refused, for its journal"
    pull.ack_answered(second, o.Gap(0))
    pull.ack_answered(first, o.Acked(5, False))
    assert pull.newest is None


def test_a_pull_that_is_gone_still_carries_its_acks_to_their_end() -> None:
    pull = pull_in(IDLE, after=9)
    pull.ack(5, b"5", b"five")
    failed = pull.ack_sent()
    pull.dropped()
    assert pull.ack_failed(failed) == ACK_STEP and pull.ack_sent() == failed
    pull.at_window = True
    assert pull.ack_answered(failed, o.Acked(5, False)) == NO_STEP


def test_an_ack_of_what_was_not_released_is_answered_and_not_sent() -> None:
    pull = pull_in(IDLE, after=9)
    do, problem = pull.ack(10, b"10", b"ten")
    assert do is NOTHING and isinstance(problem, messages.Problem)
    assert (problem.code, problem.live, problem.epoch) == ("AHEAD", "t/a", 3)
    assert "acked 10, but only items up to 9" in problem.detail
    assert pull.ack(9, b"9", None) == ACK_STEP and pull.ack_sent() == ack(9, b"9")
    do, problem = pull.ack_answered(ack(9, b"9"), o.Ahead(4))
    assert (
        do is NOTHING and isinstance(problem, messages.Problem) and "acked 9, but only items up to 4" in problem.detail
    )


# -- the end

ENDED, STALE = messages.Ended("t/a", 3), messages.Stale("t/a", 3)


@pytest.mark.parametrize(
    ("outcome", "step"),
    [
        (o.Ended(), (DROP, ENDED)),
        (o.Stale(Generation("B#1", 4)), (DROP, STALE)),
        (o.Stale(None), (DROP, STALE)),
        (o.Stale(Generation("A#1", 4), 9), (DROP, STALE)),
        (o.Stale(Generation("A#1", 3), 8), DROP_STEP),  # Its Worker pulls it over another connection.
    ],
)
@pytest.mark.parametrize("before", [SENT, AGAIN])
def test_a_release_that_finds_the_end(before: Serving, outcome: o.ReleaseOutcome, step: Any) -> None:
    pull = pull_in(before)
    assert pull.release_answered(outcome) == step and pull.serving is GONE


@pytest.mark.parametrize(
    ("outcome", "step"),
    [
        (o.Acked(9, True), (DROP, ENDED)),
        (o.Ended(), (DROP, ENDED)),
        (o.Stale(Generation("A#1", 3), 8), (DROP, STALE)),
    ],
)
def test_an_ack_that_finds_the_end(outcome: o.AckOutcome, step: Any) -> None:
    pull = pull_in(SENT, after=9)
    assert pull.ack_answered(ack(9, b"9"), outcome) == step and pull.serving is GONE
    assert pull.release_answered(o.Nothing()) == NO_STEP
