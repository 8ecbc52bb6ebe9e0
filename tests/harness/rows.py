"""The scripts' arguments back to the model's: rows of calls that many lives share, pulls, candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dhsched.ownership.items import Through
from dhsched.ownership.journal import unpacked
from dhsched.types import Equals


def split_row(step: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose arguments that are several values in one text are these values. Texts may be str or bytes."""
    values = dict(row)
    if step == "append_input":
        source, _, number = as_bytes(values.pop("source")).decode().partition(" ")
        values |= {"producer": source, "n": int(number)} if number else {"request": source}
        values["through"] = read_through(as_bytes(values["through"]))
    elif step == "release_input":
        pull = read_through(as_bytes(values.pop("pull")))
        assert pull is not None
        values |= pull._asdict()
    elif step == "ack_input":
        worker, epoch, n, mark = as_bytes(values.pop("acking")).split(b" ", 3)
        values |= {"worker": worker.decode(), "epoch": int(epoch), "n": int(n), "mark": mark}
        values["saved"], values["journal"] = unpacked(as_bytes(values["saved"]))
    return values


def as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def read_through(text: bytes) -> Through | None:
    """Return what `text` was made from; None of an empty text."""
    if not text:
        return None
    worker, epoch, pull_no, after, mark = text.split(b" ", 4)
    return Through(worker.decode(), int(epoch), int(pull_no), int(after), mark)


def candidate_of(word: str) -> str | Equals:
    """Return the candidate that `written` made this string from."""
    first, *equals = word.split("=")
    return Equals(first, tuple(equals)) if equals else first
