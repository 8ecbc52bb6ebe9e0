"""Where a conversation stands: the small state that travels with every ack to whichever Worker comes next."""

from __future__ import annotations

import msgspec

LAST_CHARS_MAX = 200


class Memory(msgspec.Struct):
    """Over all generations of the live: items and sentences that were spoken to their end, and the last words."""

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
    """What was saved. Another runtime's state, or none, is a beginning."""
    try:
        return msgspec.json.decode(saved, type=Memory) if isinstance(saved, bytes) and saved else Memory()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Memory()
