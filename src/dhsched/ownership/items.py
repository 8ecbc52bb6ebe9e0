"""How an input item lies in the queue: one mark, then the payload, which nothing here reads.

The mark says what the fence has to know without parsing: where a boundary is, and what is an interrupt. An item that is
dropped as poison becomes a dead letter: a mark, the reason, and the item as it was.
"""

from __future__ import annotations

from typing import NamedTuple

from dhsched.types import Kind

MARKS: dict[tuple[Kind, bool], bytes] = {
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


class Item(NamedTuple):
    """One input, as a runtime sees it. `config` is set where the item brings a configuration with it."""

    kind: Kind
    payload: bytes
    boundary: bool
    config: bytes | None = None


def stored(kind: Kind, payload: bytes, boundary: bool) -> bytes:
    """The blob that lies in the queue for this item."""
    return MARKS[kind, boundary] + payload


def with_config(payload: bytes, config: bytes) -> bytes:
    """An interrupt that passed over a config item brings the configuration itself: nothing else would."""
    return INTERRUPT_WITH_CONFIG + str(len(config)).encode() + b":" + config + payload


def read(blob: bytes) -> Item:
    """The item behind a stored blob."""
    mark, payload = blob[0], blob[1:]
    kind = _KINDS[mark | 0x20]
    boundary = mark in BOUNDARIES
    if blob[:1] == INTERRUPT_WITH_CONFIG:
        size, _, rest = payload.partition(b":")
        return Item(kind, rest[int(size) :], boundary, config=rest[: int(size)])
    return Item(kind, payload, boundary, config=payload if kind == "config" else None)


def dead_letter(item: bytes, reason: str) -> bytes:
    """The item as it lies among the dead letters, with what the last generation died of."""
    said = reason.encode()
    return DEAD_LETTER + str(len(said)).encode() + b":" + said + item


def read_dead_letter(letter: bytes) -> tuple[bytes, str]:
    """The item, and what the last generation died of; empty in a letter that was written without it."""
    if letter[:1] != DEAD_LETTER:
        return letter, ""
    size, _, rest = letter[1:].partition(b":")
    return rest[int(size) :], rest[: int(size)].decode()
