"""The format of an input item in the queue: its sign, its mark, then the payload, which nothing here reads.

The *sign*, one byte, tells the fence without parsing whether the item is a boundary or an interrupt. The *mark*, 32
random bits as eight hexadecimal digits, is drawn anew for every attempt to append. Counts cannot tell two histories of
a store apart that has forgotten its last second: both have an item 5. A number with its mark names one append, and
every history that has this append has the same items before it.

An item that is traced ends with its *trace*: TRACE_SIGN and TRACE_BYTES bytes, which are part of the payload for all
steps. A text is UTF-8, in which TRACE_SIGN cannot occur. A config item has no trace, because its payload becomes the
live's configuration.

An item that is dropped as poison becomes a dead letter: a sign, the reason, and the item as it was.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from dhsched.types import MARK_BYTES, Kind

SIGNS: dict[tuple[Kind, bool], bytes] = {
    ("text", False): b"t",
    ("text", True): b"T",
    ("config", False): b"c",
    ("config", True): b"C",
    ("interrupt", False): b"I",
    ("interrupt", True): b"I",
}
INTERRUPT_WITH_CONFIG = b"J"
DEAD_LETTER = b"D"
BOUNDARIES = frozenset(b"TCIJ")
_KINDS: dict[int, Kind] = {ord("t"): "text", ord("c"): "config", ord("i"): "interrupt", ord("j"): "interrupt"}
UNMARKED = b"0" * MARK_BYTES
"""The mark of an item that was appended without one, as in scenarios that lose no history."""
TRACE_SIGN = b"\xff"
TRACE_BYTES = (
    31  # Id of the trace (16), id of the span that the item belongs to (8), flags (1), when it was pushed (6).
)
_TRACE = slice(-TRACE_BYTES - 1, -TRACE_BYTES)
_HEAD = 1 + MARK_BYTES
MARK = slice(1, _HEAD)
"""Where the mark lies in a stored item."""
PULL_TEXT = b"%b %d %d %d %b"
"""A pull as a store takes it: what a `Through` has. The mark is last, because a Worker may send any bytes as a mark."""


class Item(NamedTuple):
    """One input item, as a runtime sees it. `config` is set if the item carries a configuration, `trace` if the item is
    traced."""

    kind: Kind
    payload: bytes
    boundary: bool
    config: bytes | None = None
    trace: bytes = b""


class Through(NamedTuple):
    """The pull that waits for an item which is being appended: what release_input would be called with next."""

    worker: str
    epoch: int
    pull_no: int
    after: int
    mark: bytes

    def text(self) -> bytes:
        """Return the pull as a store takes it."""
        return PULL_TEXT % (self.worker.encode(), self.epoch, self.pull_no, self.after, self.mark)


def new_mark(rng: Random) -> bytes:
    return b"%08x" % rng.getrandbits(32)


def unmarked(kind: Kind, payload: bytes, boundary: bool) -> bytes:
    """Return an item before it has a mark: sign and payload."""
    return SIGNS[kind, boundary] + payload


def marked(item: bytes, mark: bytes) -> bytes:
    """Return the stored form of an item that `unmarked` made, with its mark."""
    return item[:1] + mark + item[1:]


def stored(kind: Kind, payload: bytes, boundary: bool, mark: bytes = UNMARKED) -> bytes:
    """Return the stored form of this item."""
    return SIGNS[kind, boundary] + mark + payload


def mark_of(blob: bytes) -> bytes:
    return blob[MARK]


def with_trace(item: bytes, trace: bytes) -> bytes:
    """Return the item, which `unmarked` made and which is no config item, with a trace of TRACE_BYTES."""
    assert len(trace) == TRACE_BYTES and item[:1] not in b"cC"
    return item + TRACE_SIGN + trace


def trace_of(blob: bytes) -> bytes:
    """Return the trace of a stored item; empty if it has none."""
    return blob[-TRACE_BYTES:] if blob[_TRACE] == TRACE_SIGN and blob[:1] not in b"cC" else b""


def without_trace(blob: bytes) -> bytes:
    """Return the stored form of the same item without its trace."""
    return blob[: -TRACE_BYTES - 1] if trace_of(blob) else blob


def with_config(payload: bytes, config: bytes, mark: bytes = UNMARKED) -> bytes:
    """Return an interrupt that carries the configuration of a config item that it dropped."""
    return INTERRUPT_WITH_CONFIG + mark + str(len(config)).encode() + b":" + config + payload


def read(blob: bytes) -> Item:
    """Return the item of a stored form."""
    sign, payload = blob[0], blob[_HEAD:]
    kind = _KINDS[sign | 0x20]
    boundary = sign in BOUNDARIES
    config = payload if kind == "config" else None
    if blob[:1] == INTERRUPT_WITH_CONFIG:
        size, _, rest = payload.partition(b":")
        payload, config = rest[int(size) :], rest[: int(size)]
    if payload[_TRACE] == TRACE_SIGN and kind != "config":
        return Item(kind, payload[: -TRACE_BYTES - 1], boundary, config, payload[-TRACE_BYTES:])
    return Item(kind, payload, boundary, config)


def dead_letter(item: bytes, reason: str) -> bytes:
    """Return the item as a dead letter, with the reason of the last generation's end."""
    said = reason.encode()
    return DEAD_LETTER + str(len(said)).encode() + b":" + said + item


def read_dead_letter(letter: bytes) -> tuple[bytes, str]:
    """Return a dead letter's item and reason; the reason is empty in a letter that was written without it."""
    if letter[:1] != DEAD_LETTER:
        return letter, ""
    size, _, rest = letter[1:].partition(b":")
    return rest[int(size) :], rest[: int(size)].decode()
