"""Joins the tokens of a language model into sentences. Pure."""

from __future__ import annotations

import re

SENTENCE_CHARS_MAX = 400  # A longer sentence is cut behind its last white space, else where it is.
_END = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？][”’）」』]*\s*|\n\s*\n")


class Sentences:
    """Takes tokens, and gives sentences: together they are the same text, with every white space."""

    def __init__(self) -> None:
        self._rest = ""

    def add(self, token: str) -> list[str]:
        """Take one token; return the sentences that are whole with it. One ends where the next begins."""
        self._rest += token
        found = []
        while (end := self._end()) is not None:
            found.append(self._rest[:end])
            self._rest = self._rest[end:]
        return found

    def rest(self) -> str:
        """Return what is left after the last token."""
        rest, self._rest = self._rest, ""
        return rest

    def _end(self) -> int | None:
        # White space may go on with the next token, and a sentence takes all that follows it.
        if (match := _END.search(self._rest)) is not None and match.end() < len(self._rest):
            return match.end()
        if len(self._rest) <= SENTENCE_CHARS_MAX:
            return None
        return self._rest.rfind(" ", 1, SENTENCE_CHARS_MAX) + 1 or SENTENCE_CHARS_MAX
