"""The judge of `make failover`: each broken promise is one sentence, and whole books are none."""

from __future__ import annotations

import math

import pytest

from tests.harness.failover_judge import Books, Consumed, Granted, Issued, Opened, Push, Registered, judge

LOST_AT, HEALED_AT = 10.0, 12.0


def books() -> Books:
    """Two lives, one item each before and after a failover."""
    found = Books()
    for live, worker in (("a", "w1#1"), ("b", "w2#2")):
        found.issued += [Issued(live, 1, worker, "commit"), Issued(live, 1, worker, "answer")]
        found.opened.append(Opened(live, worker, 1, 1.0))
        found.granted += [Granted(live, 1, 1), Granted(live, 1, 2)]
        for n, at in ((1, 5.0), (2, 15.0)):
            found.pushes.append(Push(live, f"{live}{n}", "p", "accepted", at))
            found.consumed.append(Consumed(live, worker, 1, f"{live}{n}", at + 0.1))
    found.registered += [Registered("w1#1", "boot-1"), Registered("w2#2", "boot-2")]
    return found


def judged(found: Books, *quiet: str) -> list[str]:
    return judge(found, lost_at=LOST_AT, healed_at=HEALED_AT, quiet=quiet)


def test_whole_books_break_nothing() -> None:
    found = books()
    found.issued.append(Issued("a", 1, "w1#1", "commit", again=True))  # The same call, sent twice.
    found.pushes += [Push("a", "x", fate="refused", code="ENDED"), Push("a", "y", fate="unknown")]
    assert judged(found, "a", "b") == []


def test_a_push_without_an_end_is_named() -> None:
    found = books()
    found.pushes.append(Push("a", "open"))
    assert judged(found) == ["1 pushes have no end: open"]


def test_a_loss_must_be_said() -> None:
    found = books()
    found.consumed = [one for one in found.consumed if one.text != "a1"]
    assert judged(found) == ["1 items were accepted and lost, and nothing says so: a1"]
    found.losses_said = 1
    assert judged(found) == []


def test_no_word_excuses_the_loss_of_what_was_accepted_afterwards() -> None:
    found = books()
    found.losses_said = 1
    found.consumed = [one for one in found.consumed if one.text != "b2"]
    assert judged(found) == ["1 items were accepted after the failover and never consumed: b2"]


def test_the_same_text_on_another_live_is_another_item() -> None:
    found = books()
    found.pushes.append(Push("b", "a1", fate="accepted", at=20.0))
    assert judged(found) == ["1 items were accepted after the failover and never consumed: a1"]


@pytest.mark.parametrize(
    "seen", [Issued("a", 1, "w9#9", "answer"), Opened("a", "w9#9", 1, 1.0), Consumed("a", "w9#9", 1, "a1", 20.0)]
)
def test_a_number_has_one_worker_whoever_says_so(seen: Issued | Opened | Consumed) -> None:
    found = books()
    where: list[object] = {Issued: found.issued, Opened: found.opened, Consumed: found.consumed}[type(seen)]  # type: ignore[assignment]
    where.append(seen)
    assert judged(found) == ["1 numbers have two Workers: a@1 is w1#1 and w9#9"]


def test_a_number_is_given_out_once_also_to_its_own_worker() -> None:
    found = books()
    found.issued.append(Issued("a", 1, "w1#1", "commit"))
    assert judged(found) == ["1 numbers were given out twice (commit): ('a', 1)"]


def test_a_reserved_number_is_committed_where_it_was_reserved() -> None:
    found = books()
    found.issued += [Issued("a", 2, "w2#2", "reserve"), Issued("a", 2, "w2#2", "commit")]
    assert judged(found) == []
    found.issued.append(Issued("a", 2, "w2#2", "reserve"))
    assert judged(found) == ["1 numbers were given out twice (reserve): ('a', 2)"]


def test_a_pull_is_granted_once() -> None:
    found = books()
    found.granted.append(Granted("a", 1, 2))
    [sentence] = judged(found)
    assert sentence.startswith("1 pulls were granted twice: Granted(live='a'")


def test_a_worker_id_has_one_boot() -> None:
    found = books()
    found.registered += [Registered("w1#1", "boot-1"), Registered("w1#1", "boot-9")]
    assert judged(found) == ["1 WorkerIDs have two boots: w1#1"]


def test_a_live_that_the_loss_did_not_touch_keeps_its_runtime() -> None:
    found = books()
    found.opened.append(Opened("a", "w2#2", 2, 13.0))
    assert judged(found, "b") == []
    assert judged(found, "a", "b") == ["1 of 2 lives restarted, which the loss did not touch: a"]


def test_a_touched_live_restarts_once() -> None:
    found = books()
    found.opened += [Opened("a", "w2#2", 2, 13.0), Opened("a", "w2#2", 3, 14.0)]
    assert judged(found, "b") == ["1 lives restarted more than 1 times: {'a': 2}"]


def test_the_gap_is_the_longest_time_without_an_accepted_push() -> None:
    found = books()
    found.pushes += [Push("a", "x", fate="accepted", at=18.0), Push("a", "y", fate="unknown", at=16.0)]
    assert found.gap_s(LOST_AT) == 5.0
    assert math.isnan(found.gap_s(30.0)), "nobody pushed"


def test_long_lists_are_counted() -> None:
    found = books()
    found.pushes += [Push("a", f"t{n}") for n in range(7)]
    assert judged(found) == ["7 pushes have no end: t0, t1, t2, t3, t4 and 2 more"]
