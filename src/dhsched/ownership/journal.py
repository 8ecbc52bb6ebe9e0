"""The journal of a live: entries that its runtime adds with its acks, for the generations that follow.

Entries are numbered from 1, for the whole life of the live, and no number is used twice. The journal is what lies
between two numbers: everything up to `last` was written, and the oldest entries were dropped, because the runtime has
written a shorter account of them. A change names its numbers, so it can be repeated: entries that are there are not
added again, and entries that were dropped stay so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dhsched.errors import BadValue
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.ownership.outcomes import Gap, JournalFull
from dhsched.ownership.state import Journal
from dhsched.types import check_bytes, check_number

JOINED_BYTES_MAX = 4 * DEFAULT_LIMITS.journal_bytes_max
JOINED_ENTRIES_MAX = 2 * DEFAULT_LIMITS.journal_entries_max
"""Two changes with more than these are not joined, because the next one would copy them all again."""


@dataclass(frozen=True, slots=True)
class Change:
    """What an ack does to the journal: drop every entry up to number `drop`; then add `entries`, of which the first has
    the number `first`."""

    drop: int
    first: int
    entries: tuple[bytes, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1

    @property
    def bytes(self) -> int:
        return sum(map(len, self.entries))


def changed(journal: Journal, change: Change, limits: Limits) -> Journal | Gap | JournalFull:
    """Return the journal after the change, or why there is none: entries before it are missing, or it does not fit.

    A change that drops everything that is missing leaves no gap.
    """
    written = max(journal.last, change.drop)
    if change.first > written + 1:
        return Gap(journal.last)
    kept = journal.entries[max(0, change.drop - journal.dropped) :]
    entries = kept + change.entries[written + 1 - change.first :]
    size = sum(map(len, entries))
    if size > limits.journal_bytes_max or len(entries) > limits.journal_entries_max:
        return JournalFull(size)
    return Journal(max(written, change.last), entries)


def check_change(change: Change, limits: Limits) -> None:
    """Raise BadValue for a change that no journal could take."""
    check_number(change.drop, "the last dropped entry"), check_number(change.first, "the first entry", 1)
    if len(change.entries) > limits.journal_entries_max:
        raise BadValue(
            f"an ack has {len(change.entries)} journal entries, at most {limits.journal_entries_max} are kept"
        )
    for entry in change.entries:
        check_bytes(entry, "a journal entry", limits.state_bytes_max)
        if not entry:
            raise BadValue("a journal entry is empty")
    if change.bytes > limits.journal_bytes_max:
        raise BadValue(f"an ack has {change.bytes} bytes of journal, at most {limits.journal_bytes_max} are kept")


def joined(earlier: Change, later: Change) -> Change:
    """Return one change that does what both do, the earlier one first. If entries between them are missing, or both are
    more than a journal can have, return the later one: the store asks for what it misses then."""
    if not earlier.first <= later.first <= earlier.last + 1:
        return later
    if len(earlier.entries) + len(later.entries) > JOINED_ENTRIES_MAX or earlier.bytes + later.bytes > JOINED_BYTES_MAX:
        return later
    drop = max(earlier.drop, later.drop)
    entries = earlier.entries[: later.first - earlier.first] + later.entries
    first = max(earlier.first, min(drop, later.last) + 1)
    return Change(drop, first, entries[first - earlier.first :])


# -- what an ack saves, as one argument of the step: nothing; `=` and a state; or `+`, the numbers, and all the bytes

_HEAD = re.compile(rb"\+(\d+) (\d+) (\d*)((?: \d+)*);")


def packed(saved: bytes | None, change: Change | None) -> bytes:
    """Return a state, if it changed, and a change of the journal, if any, as one argument."""
    if change is None:
        return b"" if saved is None else b"=" + saved
    sizes = "".join(f" {len(entry)}" for entry in change.entries)
    head = f"+{change.drop} {change.first} {'' if saved is None else len(saved)}{sizes};"
    return b"".join((head.encode(), saved or b"", *change.entries))


def unpacked(argument: bytes) -> tuple[bytes | None, Change | None]:
    """Return the state and the change that `packed` was given."""
    head = _HEAD.match(argument)
    if head is None:
        return (argument[1:] if argument else None), None
    drop, first, state, sizes = head.groups()
    at, parts = head.end(), []
    for size in (int(state or 0), *map(int, sizes.split())):
        parts.append(argument[at : at + size])
        at += size
    return (parts[0] if state else None), Change(int(drop), int(first), tuple(parts[1:]))
