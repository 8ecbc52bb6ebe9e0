"""The rows of calls that many lives share, from the scripts' arguments back to the model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dhsched.ownership import items
from dhsched.ownership.journal import unpacked


def split_row(step: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose arguments that are several values in one text are these values. Texts may be str or bytes."""
    values = dict(row)
    if step == "append_input":
        source, _, number = as_bytes(values.pop("source")).decode().partition(" ")
        values |= {"producer": source, "n": int(number)} if number else {"request": source}
        values["through"] = items.read_through(as_bytes(values["through"]))
    elif step == "release_input":
        pull = items.read_through(as_bytes(values.pop("pull")))
        assert pull is not None
        values |= pull._asdict()
    elif step == "ack_input":
        worker, epoch, n, mark = as_bytes(values.pop("acking")).split(b" ", 3)
        values |= {"worker": worker.decode(), "epoch": int(epoch), "n": int(n), "mark": mark}
        values["saved"], values["journal"] = unpacked(as_bytes(values["saved"]))
    return values


def as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
