"""Wrong values for the fields of a message, and the table of what was sent. Pure.

A row is a message and a field; the fields come from the product's own definitions (msgspec structs, the named tuple of
a packet, the claims of a token that the product issued), so a new field is a new row. A column is a kind of wrong
value. Where a kind does not fit a type, the cell still has a value of that kind: a negative text is "-1".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from dhsched.types import name_of

KINDS = ("another's", "old", "future", "negative", "2^53", "wrong type", "too long", "repeated")
SINGLE = KINDS[:-1]
"""Kinds of one wrong value; the last one is the valid message, many times."""
BIG = 2**53
EVIL = "EVIL"
"""Every text that the hostile side makes up begins so: the judge finds it where it must not be."""
HOSTILE = "evil-1"
"""Name of the hostile Worker."""
LENT = "E"
"""How the names of the lives begin that may be on the hostile Worker: no other live ever is."""
VIEWED = "default/viewed"
"""The live that the hostile viewer has a token for."""
NO_FIELD = "-"
"""The row of a message without fields: each kind is sent as one field more than the message has."""
LONG = 100_000


class Row(NamedTuple):
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.message}.{self.field}"


class Known(NamedTuple):
    """Values of one field that the hostile side knows: its own now, of another, of its own earlier, of its future."""

    own: Any
    anothers: Any = None
    old: Any = None
    future: Any = None


def is_hostile(worker: str) -> bool:
    return name_of(worker) == HOSTILE


def is_lent(live: str) -> bool:
    return live.partition("/")[2].startswith(LENT)


# -- fields


def fields_of(kind: type[Any]) -> dict[str, inspect.Type]:
    """The fields of a struct by name. Those of a struct within it have its name and a dot before theirs."""
    found: dict[str, inspect.Type] = {}
    told = inspect.type_info(kind)
    assert isinstance(told, inspect.StructType)
    for each in told.fields:
        inner = bare(each.type)
        if isinstance(inner, inspect.StructType):
            found |= {f"{each.encode_name}.{name}": one for name, one in fields_of(inner.cls).items()}
        else:
            found[each.encode_name] = inner
    return found or {NO_FIELD: inspect.AnyType()}


def bare(kind: inspect.Type) -> inspect.Type:
    """A type without its metadata, and without what stands for its absence."""
    if isinstance(kind, inspect.Metadata):
        return bare(kind.type)
    if isinstance(kind, inspect.UnionType):
        return bare(next(each for each in kind.types if not isinstance(each, inspect.NoneType | inspect.CustomType)))
    return kind


def rows_of(message: str, kind: type[Any]) -> list[Row]:
    return [Row(message, field) for field in fields_of(kind)]


def value_of_type(value: Any) -> inspect.Type:
    """The type of a value that has no definition: a claim of a token, a part of a path."""
    types: dict[type, inspect.Type] = {
        bool: inspect.BoolType(),
        int: inspect.IntType(),
        float: inspect.FloatType(),
        bytes: inspect.BytesType(),
    }
    return types.get(type(value), inspect.StrType())


# -- values


def wrong(kind: str, type_: inspect.Type, known: Known) -> Any:
    """A value of this kind for a field of this type."""
    match kind:
        case "another's":
            return known.anothers if known.anothers is not None else made_up(type_, known.own, 7)
        case "old":
            return known.old if known.old is not None else made_up(type_, known.own, -1)
        case "future":
            return known.future if known.future is not None else made_up(type_, known.own, 1)
        case "negative":
            return of_number(type_, -1)
        case "2^53":
            return of_number(type_, BIG)
        case "wrong type":
            return 7 if isinstance(type_, TEXTS) else {EVIL: [EVIL]}
        case "too long":
            return too_long(type_)
    return known.own


TEXTS = (inspect.StrType, inspect.BytesType, inspect.LiteralType, inspect.DictType)
LISTS = (inspect.ListType, inspect.VarTupleType, inspect.CollectionType)


def made_up(type_: inspect.Type, own: Any, step: int) -> Any:
    """A value of the right type that is not the sender's own: a number `step` further, or a made-up text."""
    match type_:
        case inspect.IntType() | inspect.FloatType():
            return (own or 0) + step if (own or 0) + step >= 0 else (own or 0) + 100
        case inspect.BoolType():
            return not own
        case inspect.BytesType():
            return f"{EVIL}{step:+04d}".encode()
        case _ if isinstance(type_, LISTS):
            return [f"{EVIL}/{EVIL}@{abs(step)}"]
    return f"{EVIL}{step:+d}"


def of_number(type_: inspect.Type, number: int) -> Any:
    match type_:
        case inspect.FloatType():
            return float(number)
        case inspect.BytesType():
            return str(number).encode()
        case inspect.StrType() | inspect.LiteralType():
            return str(number)
        case _ if isinstance(type_, LISTS):
            return [str(number)]
    return number


def too_long(type_: inspect.Type) -> Any:
    longest = getattr(type_, "max_length", None)
    match type_:
        case inspect.IntType() | inspect.BoolType():
            return 2**64 - 1
        case inspect.FloatType():
            return 1e308
        case inspect.BytesType():
            return b"E" * ((longest or LONG) + 1)
        case _ if isinstance(type_, LISTS):
            return [EVIL] * ((longest or LONG) + 1)
    return EVIL + "a" * ((longest or LONG) + 1)


def with_field(message: Mapping[str, Any], field: str, value: Any) -> dict[str, Any]:
    """The message, as a map, with another value of one field, which may be within another (`video.codec`)."""
    head, _, rest = field.partition(".")
    if rest:
        return {**message, head: with_field(message[head], rest, value)}
    return {**message, head: value}


def shares(times: int, among: int) -> list[int]:
    """A number as the sum of so many that are alike."""
    return [times // among + (n < times % among) for n in range(among)]


# -- the table


class Coverage:
    """How often each cell was sent, and what came of each message."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = [*rows]
        assert len({*self.rows}) == len(self.rows)
        self.sent: Counter[tuple[Row, str]] = Counter()
        self.came: Counter[tuple[str, str]] = Counter()
        """By message and word: answered, refused, closed, ignored."""

    def count(self, row: Row, kind: str, came: str, times: int = 1) -> None:
        self.sent[row, kind] += times
        self.came[row.message, came] += times

    def repeated(self, message: str, came: str, times: int, *, counts: bool = True) -> None:
        """Count a valid message that was sent so often: each of its fields was. Without `counts` it was not read."""
        self.came[message, came] += times
        for row in self.rows:
            if row.message == message and counts:
                self.sent[row, "repeated"] += times

    def repeats_of(self, message: str) -> int:
        return min(self.sent[row, "repeated"] for row in self.rows if row.message == message)

    def lacking(self, repeats: int) -> list[str]:
        """The cells that are empty, or were not repeated often enough."""
        needed = {kind: repeats if kind == "repeated" else 1 for kind in KINDS}
        return [
            f"{row}: {kind} was sent {self.sent[row, kind]} times, not {least}"
            for row in self.rows
            for kind, least in needed.items()
            if self.sent[row, kind] < least
        ]

    def lines(self) -> Iterator[str]:
        """The table, and below it what came of each message."""
        width = max(len(str(row)) for row in self.rows)
        yield f"{'message.field':<{width}} " + "".join(f"{kind:>11}" for kind in KINDS)
        for row in self.rows:
            yield f"{row!s:<{width}} " + "".join(f"{self.sent[row, kind] or '':>11}" for kind in KINDS)
        words = sorted({word for _, word in self.came})
        yield ""
        yield f"{'what came of it':<{width}} " + "".join(f"{word:>11}" for word in words)
        for message in dict.fromkeys(row.message for row in self.rows):
            yield f"{message:<{width}} " + "".join(f"{self.came[message, word] or '':>11}" for word in words)


def as_array(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> list[Any]:
    """A message of a link as the array that is sent; a field that it does not have comes at the end."""
    told = inspect.type_info(kind)
    assert isinstance(told, inspect.StructType)
    names = [each.encode_name for each in told.fields]
    # A struct within it is an array too.
    plain = {name: [*value.values()] if isinstance(value, Mapping) else value for name, value in given.items()}
    return [told.tag, *(plain[name] for name in names), *(value for name, value in plain.items() if name not in names)]
