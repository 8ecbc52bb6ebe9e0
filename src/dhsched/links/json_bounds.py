"""Limits on what a JSON text has in it, checked before the text is decoded. Pure.

Decoding builds every value at once and cannot be interrupted. An empty object is 3 bytes of a text and 70 in memory. A
number like 1e308 is 6 bytes and takes the decoder 12 microseconds: a megabyte of these would stop a replica for two
seconds. So objects, arrays, values and exponents outside of strings are counted first, with searches that cost a
thousandth.
"""

from __future__ import annotations

from collections.abc import Iterator

SHORT_BYTES = 2_000  # A shorter text is not checked: whatever is in it costs less than the limits allow.
CONTAINERS_MAX = 512  # Objects and arrays of one text; a text with more is refused.
EXPONENTS_MAX = 500  # Numbers with an exponent in one text; a text with more is refused.
STRINGS_MAX = 1_024  # Strings of one text, names included; a text with more is refused.
VALUES_FREE = 2_048  # Values of one text, and
VALUE_BYTES = 8  # one more for each so many bytes; a text with more is refused. A small number takes 60 bytes.

QUOTES = 512  # An even number, so that each part ends outside of a string; few, because of their memory.


def excess(raw: bytes) -> str:
    """Return what a JSON text has too much of, with the limit; empty if the text may be decoded."""
    if len(raw) <= SHORT_BYTES:
        return ""
    # First with strings and all, because most texts are far below the limits.
    exponents = raw.count(b"e") + raw.count(b"E")
    values_max = VALUES_FREE + len(raw) // VALUE_BYTES
    few = containers(raw) <= CONTAINERS_MAX and exponents <= EXPONENTS_MAX
    if few and raw.count(b'"') <= 2 * STRINGS_MAX and raw.count(b",") <= values_max:
        return ""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if raw.count(b'"') > 2 * STRINGS_MAX:
        return f"more than {STRINGS_MAX} strings"
    begun = exponents = values = 0
    for part in _outside_of_strings(raw):
        begun += containers(part)
        values += part.count(b",")
        exponents += part.count(b"e") + part.count(b"E") - part.count(b"true") - part.count(b"false")
    if begun > CONTAINERS_MAX:
        return f"{begun} objects and arrays; send at most {CONTAINERS_MAX}"
    if exponents > EXPONENTS_MAX:
        return f"{exponents} numbers with an exponent; send at most {EXPONENTS_MAX}"
    if values > values_max:
        return f"{values} values; send at most {VALUES_FREE}, and one more for every {VALUE_BYTES} bytes"
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
