"""The state of a conversation: saved with every ack, for the next Worker of the live."""

from __future__ import annotations

import msgspec

LAST_CHARS_MAX = 200  # Of a longer text only the end is remembered.


class Memory(msgspec.Struct):
    """Counts of items and sentences spoken to their end, over all generations of the live, and the last words."""

    items: int = 0
    sentences: int = 0
    last: str = ""

    def spoken(self, text: str, sentences: int) -> None:
        self.items += 1
        self.sentences += sentences
        if text.strip():
            self.last = " ".join(text.split())[-LAST_CHARS_MAX:]

    def saved(self) -> bytes:
        return msgspec.json.encode(self)


def remembered(saved: object) -> Memory:
    """Return the saved memory; an empty one if nothing was saved, or another runtime saved it."""
    try:
        return msgspec.json.decode(saved, type=Memory) if isinstance(saved, bytes) and saved else Memory()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Memory()
