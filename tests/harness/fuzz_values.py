"""Valid values of the types of requests and messages: common ones, and the largest."""

from __future__ import annotations

import re
from typing import Any

from msgspec import inspect

from dhsched.types import MARK_BYTES

HONEST: dict[str, Any] = {
    "digital_id": "demo",
    "pool": "gpu",
    "tenant": "default",
    "label": "no-live-has-it",  # Or the end of many lives would end those of the other rows.
    "text": "Hello there.",
    "role": "app",
    "live": "default/demo",
    "mark": b"m" * MARK_BYTES,
    "saved": b"state",
    "capacity": 4,
    "replaces": "",
}


def value(kind: inspect.Type, name: str, *, large: bool) -> Any:
    """Return a valid value of a type: a common one, or the largest."""
    if not large and name in HONEST:
        return HONEST[name]
    match kind:
        case inspect.Metadata():
            return value(kind.type, name, large=large)
        case inspect.BoolType():
            return large
        case inspect.IntType() | inspect.FloatType():
            low, high = kind.ge or 0, kind.le if kind.le is not None else (kind.lt or 2**31) - 1
            return high if large else low
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.StrType():
            return text_of(kind, large=large)
        case inspect.BytesType():
            return b"x" * (kind.max_length or 100_000 if large else 4)
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            count = (kind.max_length or 1_000) if large else (kind.min_length or 0)
            return [value(kind.item_type, name, large=large)] * count
        case inspect.StructType():
            return struct_of(kind.cls, large=large)
        case inspect.DictType():
            return {f"k{n}": n for n in range(1_000 if large else 1)}
        case inspect.UnionType():
            return value(next(each for each in kind.types if not isinstance(each, UNSENT)), name, large=large)
    return None


UNSENT = (inspect.NoneType,)


def text_of(kind: inspect.StrType, *, large: bool) -> str:
    longest = min(kind.max_length or 4_096, 16_000)
    for text in ("a" * longest, "a" * 200, "a" * 64, "0" * 16, "0" * 12, "w1#1", "t/l", "1-1", "00000000.1", "0"):
        text = text if large else text[: kind.min_length or 1] if text[0] == "a" else text
        if kind.pattern is None or re.search(kind.pattern, text):
            return text
    raise AssertionError(f"no text fits {kind.pattern}")


def struct_of(kind: type[Any], *, large: bool) -> dict[str, Any]:
    """Return the fields of a struct: the required ones, or all."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    fields = [each for each in found.fields if large or each.required or each.name in HONEST]
    return {each.encode_name: value(each.type, each.name, large=large) for each in fields}
