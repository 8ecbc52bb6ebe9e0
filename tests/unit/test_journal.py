"""The journal of a live: what a change does, what a runtime writes, and what is sent again."""

from __future__ import annotations

from random import Random

import pytest

from dhsched.errors import BadValue
from dhsched.ownership.journal import (
    JOINED_BYTES_MAX,
    JOINED_ENTRIES_MAX,
    Change,
    changed,
    check_change,
    joined,
    packed,
    unpacked,
)
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Gap, JournalFull
from dhsched.ownership.state import Journal as Stored
from dhsched.worker.journal import BYTES_MAX, ENTRIES_MAX, ENTRY_BYTES_MAX, Journal

LIMITS = Limits()


def test_one_argument_carries_state_and_journal() -> None:
    for saved in (None, b"", b"state;1 2", b"+1 2;"):
        for change in (None, Change(0, 1, ()), Change(3, 7, (b"a;b", b" 12 ", b"x" * 300))):
            assert unpacked(packed(saved, change)) == (saved, change)


def test_two_changes_are_one_that_does_what_both_do() -> None:
    """Whatever a runtime writes in two acks, the store has the same after both, after the joined one, and after any
    repetition of them."""
    rng = Random(7)
    for _ in range(2_000):
        stored = Stored(last=rng.randrange(4))
        journal = Journal(stored.last, stored.entries)
        changes: list[Change] = []
        while len(changes) < 2:
            for _ in range(rng.randrange(4)):
                if rng.random() < 0.2:
                    journal.replace([rng.randrange(100) for _ in range(rng.randrange(3))])
                else:
                    journal.append(rng.randrange(100))
            if (change := journal.acked()) is not None:
                changes.append(change)
        one, two = changes
        after = stored
        for change in (one, two):
            after = taken(after, change)
        assert [*after.entries] == journal._entries
        assert taken(stored, joined(one, two)) == after
        assert taken(taken(after, one), two) == after, "repeated"
        assert taken(after, joined(one, two)) == after
        since = journal.acked_since(stored.last)
        assert since is not None and taken(stored, since) == after, "sent again after a reconnect"
        assert taken(after, since) == after


def taken(journal: Stored, change: Change) -> Stored:
    after = changed(journal, change, LIMITS)
    assert isinstance(after, Stored), after
    return after


def test_changes_that_are_too_much_or_apart_are_not_joined() -> None:
    apart = Change(0, 9, (b"x",))
    assert joined(Change(0, 1, (b"a",)), apart) is apart
    assert changed(Stored(), apart, LIMITS) == Gap(0)
    large = Change(0, 2, (b"x" * JOINED_BYTES_MAX,))
    assert joined(Change(0, 1, (b"a",)), large) is large


def test_however_many_acks_of_a_hostile_worker_are_joined_the_work_for_each_is_bounded() -> None:
    """Each ack copies what was joined before: without a bound on the entries, 256 such acks in a row, none of them sent
    in between, took three seconds."""
    together = Change(0, 1, (b"x",) * ENTRIES_MAX)
    for _ in range(256):
        together = joined(together, Change(0, together.last + 1, (b"x",) * ENTRIES_MAX))
        assert len(together.entries) <= JOINED_ENTRIES_MAX


def test_what_does_not_fit_is_refused_as_a_whole() -> None:
    limits = Limits(journal_bytes_max=4, journal_entries_max=2)
    stored = Stored(2, (b"ab", b"c"))
    assert changed(stored, Change(0, 3, (b"d",)), limits) == JournalFull(4)
    assert changed(stored, Change(1, 3, (b"defg",)), limits) == JournalFull(5)
    assert changed(stored, Change(1, 3, (b"def",)), limits) == Stored(3, (b"c", b"def"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (Change(-1, 1, ()), "dropped entry"),
        (Change(0, 0, ()), "first entry"),
        (Change(0, 1, (b"",)), "empty"),
        (Change(0, 1, (b"x" * (LIMITS.state_bytes_max + 1),)), "a journal entry has 65537 bytes"),
        (Change(0, 1, (b"x",) * (LIMITS.journal_entries_max + 1)), "1025 journal entries"),
        (Change(0, 1, (b"x" * LIMITS.state_bytes_max,) * 17), "bytes of journal"),
    ],
)
def test_a_change_that_no_journal_could_take_is_refused(change: Change, says: str) -> None:
    with pytest.raises(BadValue, match=says):
        check_change(change, LIMITS)


def test_a_runtime_is_told_what_does_not_fit() -> None:
    journal = Journal()
    journal.append({"heard": "hello"})
    journal.append(b"\x00bytes")
    assert journal.values() == [{"heard": "hello"}, b"\x00bytes"] and len(journal) == 2
    for value in (object(), b"x" * (ENTRY_BYTES_MAX + 1)):
        with pytest.raises(BadValue, match="journal entry"):
            journal.append(value)
    with pytest.raises(BadValue, match="replace"):
        journal.replace(range(ENTRIES_MAX + 1))
    with pytest.raises(BadValue, match="replace"):
        journal.replace([b"x" * ENTRY_BYTES_MAX] * (BYTES_MAX // ENTRY_BYTES_MAX + 1))
    assert len(journal) == 2, "nothing was replaced"
    while len(journal) < ENTRIES_MAX:
        journal.append(1)
    with pytest.raises(BadValue, match="replace"):
        journal.append(1)
    journal.replace([])
    assert journal.values() == [] and journal.size == 0
    journal.replace([b"x" * ENTRY_BYTES_MAX] * (BYTES_MAX // ENTRY_BYTES_MAX))
    assert journal.size == BYTES_MAX, "it is full to the last byte"
    with pytest.raises(BadValue, match="replace"):
        journal.append(b"x")


def test_an_ack_brings_only_what_is_new() -> None:
    journal = Journal(3, [b"c"])
    assert journal.acked() is None
    journal.append(b"d")
    assert journal.acked() == Change(2, 4, (b"d",))
    assert journal.acked() is None
    journal.append(b"e")
    journal.replace([b"all"])
    assert journal.acked_since(3) == Change(2, 4, (b"d",)), "what is not acked is not sent again"
    assert journal.acked() == Change(5, 6, (b"all",))
    assert journal.acked_since(4) == Change(5, 6, (b"all",))
    assert Journal().acked_since(0) is None


def test_a_copy_s_changes_have_the_numbers_of_the_copy() -> None:
    journal = Journal(3, [b"a", b"b", b"c"])
    journal.apply(Change(0, 4, (b"d",)))
    assert journal.copied == (4, [b"a", b"b", b"c", b"d"]) and journal.size == 4
    journal.apply(Change(4, 5, (b"summary",)))
    assert journal.copied == (5, [b"summary"]) and journal.size == 7
    journal.apply(Change(5, 6, ()))
    assert journal.copied == (5, []) and journal.size == 0
    with pytest.raises(BadValue, match="replace"):
        journal.apply(Change(0, 6, (b"x",) * (ENTRIES_MAX + 1)))
