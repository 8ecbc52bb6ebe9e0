"""The journal of a live, as its runtime sees it: a list of values that outlives the runtime, up to a megabyte.

    journal = await session.journal()
    history = journal.values()                  what earlier generations have written
    async for item in session.inputs():
        ...
        journal.append({"heard": item.text})    stored with the ack of this item, or not at all
        if len(journal) > 500:
            journal.replace([summary])

Numbers and changes: ownership/journal.py. All entries stay in memory, so what the store forgets can be written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dhsched.errors import BadValue
from dhsched.ownership.journal import Change
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.worker.values import raw_state, state_of

ENTRY_BYTES_MAX = DEFAULT_LIMITS.state_bytes_max
BYTES_MAX = DEFAULT_LIMITS.journal_bytes_max
ENTRIES_MAX = DEFAULT_LIMITS.journal_entries_max
"""An entry beyond these limits is refused with BadValue: write a shorter account with `replace`."""


class Journal:
    """The journal of one live. `append` and `replace` take JSON values and bytes, and are saved with the next ack."""

    __slots__ = ("_acked", "_acked_first", "_acked_last", "_bytes", "_entries", "_first")

    def __init__(self, last: int = 0, entries: Sequence[bytes] = ()) -> None:
        self._entries = [*entries]
        self._first = last - len(entries) + 1  # The number of the first entry.
        self._bytes = sum(map(len, entries))
        # As of the last ack: its entries begin with this number, and end with the other.
        self._acked, self._acked_first, self._acked_last = self._entries, self._first, last

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Return how many bytes all entries have, of at most BYTES_MAX."""
        return self._bytes

    def values(self) -> list[Any]:
        """Return new copies of all entries, the oldest first."""
        return [state_of(entry) for entry in self._entries]

    def append(self, value: Any) -> None:
        """Add an entry. Raise BadValue if the value is no JSON, or it does not fit."""
        entry = entry_of(value)
        refuse_overflow(self._bytes + len(entry), len(self) + 1)
        self._entries.append(entry)
        self._bytes += len(entry)

    def replace(self, values: Iterable[Any]) -> None:
        """Replace all entries by these, such as a summary. Raise BadValue if they do not fit; then nothing changes."""
        entries = [entry_of(value) for value in values]
        size = sum(map(len, entries))
        refuse_overflow(size, len(entries))
        # The list of the last ack stays as it is until the next ack.
        self._first += len(self._entries)
        self._entries, self._bytes = entries, size

    # -- for a copy of it in another process (child_session.py)

    @property
    def copied(self) -> tuple[int, list[bytes]]:
        """Return the number of the last entry, and all entries as they are stored: what a copy begins with."""
        return self._first + len(self._entries) - 1, [*self._entries]

    def apply(self, change: Change) -> None:
        """Make the change that an ack of a copy brings. Raise BadValue if it does not fit."""
        kept = [] if change.drop >= self._first else self._entries
        size = sum(map(len, change.entries)) + (self._bytes if kept else 0)
        refuse_overflow(size, len(kept) + len(change.entries))
        if not kept:
            # The list of the last ack stays as it is until the next ack.
            self._first, kept = change.drop + 1, []
        kept.extend(change.entries)
        self._entries, self._bytes = kept, size

    # -- for the connection

    def acked(self) -> Change | None:
        """Return the change that the next ack carries; None if nothing has changed since the last ack."""
        last = self._first + len(self._entries) - 1
        if last == self._acked_last and self._first == self._acked_first:
            return None
        change = self._since(self._acked_last, self._entries, self._first, last)
        self._acked, self._acked_first, self._acked_last = self._entries, self._first, last
        return change

    def acked_since(self, stored: int) -> Change | None:
        """Return the change of all acks so far that a store with the last entry `stored` may lack."""
        if not self._acked_last:
            return None
        return self._since(stored, self._acked, self._acked_first, self._acked_last)

    def _since(self, stored: int, entries: Sequence[bytes], first: int, last: int) -> Change:
        start = max(stored + 1, first)
        return Change(first - 1, start, tuple(entries[start - first : max(0, last + 1 - first)]))


def entry_of(value: Any) -> bytes:
    try:
        entry = raw_state(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadValue(f"a journal entry must be bytes or a JSON value ({error})") from None
    if len(entry) > ENTRY_BYTES_MAX:
        raise BadValue(f"a journal entry has {len(entry)} bytes, at most {ENTRY_BYTES_MAX} are kept")
    return entry


def refuse_overflow(size: int, count: int) -> None:
    if size > BYTES_MAX or count > ENTRIES_MAX:
        raise BadValue(
            f"the journal would have {size} bytes in {count} entries, at most {BYTES_MAX} in {ENTRIES_MAX} are kept; "
            "call journal.replace() with a shorter account"
        )
