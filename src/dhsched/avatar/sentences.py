"""Cuts text into pieces that can be spoken one by one: sentences, and parts of long ones.

A piece is short enough that the first one is heard soon, that the voice's lock is held briefly, and that the sound of
the whole text is never in memory at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

PIECE_CHARS_MAX = 400  # A longer sentence is cut at a pause, else between words.

_END = re.compile(r"(?<=[.!?…。！？])[\"'”’)\]]*\s+|\n\s*\n")
_PAUSE = re.compile(r"(?<=[,;:–—])\s+")


def pieces(text: str) -> Iterator[str]:
    """Yield the text in order, in pieces of at most PIECE_CHARS_MAX characters with something to say in each."""
    for sentence in _END.split(printable(text)):
        yield from _shortened(" ".join(sentence.split()))


def ends_in(text: str, piece: str, begin: int) -> list[int]:
    """Return, for each number of first characters of the piece, how many of the text are heard with them.

    `begin` is where the piece before it ended. A piece has its characters in their order, but not all white space and
    marks between them.
    """
    ends = [begin]
    for char in piece:
        at = begin if char.isspace() else text.find(char, begin)
        begin = begin if char.isspace() or at < 0 else at + 1
        ends.append(begin)
    return ends


def printable(text: str) -> str:
    """Return the text without control characters and lone surrogates, which a C library must not get."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def _shortened(sentence: str) -> Iterator[str]:
    while len(sentence) > PIECE_CHARS_MAX:
        cut = _cut(sentence)
        yield sentence[:cut].strip()
        sentence = sentence[cut:].strip()
    if any(c.isalnum() for c in sentence):
        yield sentence


def _cut(sentence: str) -> int:
    """Return where to break: at the last pause, else between words, else anywhere."""
    within = sentence[: PIECE_CHARS_MAX + 1]
    pauses = [found.end() for found in _PAUSE.finditer(within)]
    if pauses:
        return min(pauses[-1], PIECE_CHARS_MAX)
    space = within.rfind(" ")
    return space if space > 0 else PIECE_CHARS_MAX
