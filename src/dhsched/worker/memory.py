"""The memory of a conversation: which messages of its context are in the live's journal.

The journal has the messages that came after the initial ones (the prompt), so that a new version of the bot may bring a
new prompt. A context whose initial messages were changed is kept as a whole, behind the entry WHOLE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from dhsched.errors import BadValue
from dhsched.worker.journal import BYTES_MAX, ENTRIES_MAX, ENTRY_BYTES_MAX
from dhsched.worker.values import raw_state

Message = dict[str, Any]

WHOLE: Message = {"dhsched": "the whole context follows"}
KEPT_BYTES = BYTES_MAX // 2
KEPT_ENTRIES = ENTRIES_MAX // 2
"""Of a context that does not fit into the journal, the latest messages up to these limits are kept: half is free
again."""
TOO_LARGE = "(not kept: too large)"


class Journal(Protocol):
    """The part of a live's journal that a memory uses."""

    def values(self) -> list[Any]: ...

    def append(self, value: Any) -> None: ...

    def replace(self, values: list[Any]) -> None: ...


class Memory:
    """The context of one conversation in its journal. `messages` is what the context begins with."""

    def __init__(
        self, journal: Journal, initial: Sequence[Message], without: Callable[[Message], Message] | None = None
    ) -> None:
        """`without` returns the short form of a message that is too large for an entry."""
        self._journal = journal
        self._without = without or without_content
        self._initial = self._plain(initial)
        self._stored: list[Any] = journal.values()
        whole = self._stored[:1] == [WHOLE]
        self._skipped = 0  # Messages behind the initial ones that are in the context and were too many to be kept.
        self.messages: list[Message] = self._stored[1:] if whole else [*self._initial, *self._stored]

    def keep(self, messages: Sequence[Message]) -> bool:
        """Write new messages of the context to the journal, for the next ack; return whether there are any."""
        said = self._plain(messages)
        begins = len(self._initial)
        if said[:begins] == self._initial:
            wanted = said[begins + self._skipped :]
        else:
            wanted, self._skipped = [WHOLE, *said], 0
        if wanted == self._stored:
            return False
        known = len(self._stored)
        try:
            if wanted[:known] == self._stored:
                for message in wanted[known:]:
                    self._journal.append(message)
            else:
                self._journal.replace(wanted)
        except BadValue:
            kept = latest(wanted)
            self._skipped += len(wanted) - len(kept)
            self._journal.replace(kept)
            wanted = kept
        self._stored = wanted
        return True

    def _plain(self, messages: Sequence[Message]) -> list[Message]:
        """Return copies of the messages as plain JSON values, each small enough for one entry."""
        copies = [msgspec.json.decode(msgspec.json.encode(message, enc_hook=str)) for message in messages]
        return [each if len(raw_state(each)) <= ENTRY_BYTES_MAX else self._without(each) for each in copies]


def without_content(message: Message) -> Message:
    return {"role": message.get("role", "user"), "content": TOO_LARGE}


def latest(entries: Sequence[Message]) -> list[Message]:
    """Return the entries from the first that fits on: the latest, and WHOLE and the system's messages before them."""
    head: list[Message] = []
    for entry in entries:
        if entry != WHOLE and entry.get("role") not in ("system", "developer"):
            break
        head.append(entry)
    head = head if head[:1] == [WHOLE] else []
    size, kept = sum(len(raw_state(entry)) for entry in head), list[Message]()
    for entry in reversed(entries[len(head) :]):
        size += len(raw_state(entry))
        if size > KEPT_BYTES or len(head) + len(kept) >= KEPT_ENTRIES:
            break
        kept.append(entry)
    kept.reverse()
    # A result without its call is refused by language models.
    while kept and (kept[0].get("role") == "tool" or kept[0].get("type") == "function_call_output"):
        kept.pop(0)
    return [*head, *kept]
