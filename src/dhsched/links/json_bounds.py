"""Limits on what a JSON text has in it, checked before the text is decoded. Pure.

Decoding builds every value at once and cannot be interrupted. An empty object is 3 bytes of a text and 70 in memory. A
number like 1e308 is 6 bytes and takes the decoder 12 microseconds: a megabyte of these would stop a replica for two
seconds. So objects, arrays and exponents outside of strings are counted first, with searches that cost a thousandth.
"""

from __future__ import annotations

from collections.abc import Iterator

SHORT_BYTES = 3_000  # A shorter text is not checked: whatever is in it costs less than the limits allow.
CONTAINERS_MAX = 4_096  # Objects and arrays of one text; a text with more is refused.
EXPONENTS_MAX = 500  # Numbers with an exponent in one text; a text with more is refused.
STRINGS_MAX = 12_288  # Strings of one text, names of fields included; a text with more is refused.

QUOTES = 4_096  # An even number, so that each part ends outside of a string.


def excess(raw: bytes) -> str:
    """Return what a JSON text has too much of, with the limit; empty if the text may be decoded."""
    if len(raw) <= SHORT_BYTES:
        return ""
    # First with strings and all, because most texts are far below the limits.
    exponents = raw.count(b"e") + raw.count(b"E")
    if containers(raw) <= CONTAINERS_MAX and exponents <= EXPONENTS_MAX and raw.count(b'"') <= 2 * STRINGS_MAX:
        return ""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if raw.count(b'"') > 2 * STRINGS_MAX:
        return f"more than {STRINGS_MAX} strings"
    begun = exponents = 0
    for part in _outside_of_strings(raw):
        begun += containers(part)
        exponents += part.count(b"e") + part.count(b"E") - part.count(b"true") - part.count(b"false")
    if begun > CONTAINERS_MAX:
        return f"{begun} objects and arrays; send at most {CONTAINERS_MAX}"
    if exponents > EXPONENTS_MAX:
        return f"{exponents} numbers with an exponent; send at most {EXPONENTS_MAX}"
    return ""


def _outside_of_strings(raw: bytes) -> Iterator[bytes]:
    """Yield what is not in a string, in parts, so that little of it is in memory twice. Escapes are gone already."""
    while True:
        parts = raw.split(b'"', QUOTES)
        if len(parts) <= QUOTES:
            yield b" ".join(parts[::2])
            return
        yield b" ".join(parts[:-1:2])
        raw = parts[-1]


def containers(raw: bytes) -> int:
    """Return how often an object or array begins, those in strings included."""
    return raw.count(b"{") + raw.count(b"[")
