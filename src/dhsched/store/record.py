"""The values of the two fields of a live's record that are texts of several values. The twin of lua/lib/record.lua."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Fields = Mapping[str, bytes]
CURSORS = ("appended", "released", "acked", "config_next", "at_boundary", "acked_mark")
FENCE = ("epoch", "pull_no", "state", "unclaimed", "first", "hold", "suspect", "waiting", "fallback")
STORED_IN = {**dict.fromkeys(CURSORS, "cursors"), **dict.fromkeys(FENCE, "fence")}
"""The field that a value is part of."""
PRESENT = b"1"  # The value of a word of the fence that has no value of its own.


def stored_fields(names: Iterable[str]) -> tuple[str, ...]:
    """Return the fields of a record that have these values, each once."""
    return tuple(dict.fromkeys(STORED_IN.get(name, name) for name in names))


def read_record(stored: Fields) -> dict[str, bytes]:
    """Return the values of a live's record, or of some of its fields, by name. What is not set is absent."""
    values = {field: value for field, value in stored.items() if value and field not in ("cursors", "fence")}
    if stored.get("cursors"):
        cursors = zip(CURSORS, stored["cursors"].split(b" ", 5), strict=True)
        values |= {name: value for name, value in cursors if value}
    if stored.get("fence"):
        epoch, pull_no, state, *words = stored["fence"].split(b" ")
        values |= {"epoch": epoch, "pull_no": pull_no, "state": state}
        for word in words:
            name, _, value = word.partition(b"=")
            values[name.decode()] = value or PRESENT
    return values


def read_texts(names: Sequence[str], reply: Iterable[bytes | None]) -> dict[str, str]:
    """Return these values as text, from the reply of an HMGET of `stored_fields(names)`; empty where not set."""
    values = read_record({field: value or b"" for field, value in zip(stored_fields(names), reply, strict=True)})
    return {name: values.get(name, b"").decode() for name in names}
