"""Names and shapes: how the model's values look as values of the specification.

Lives, Workers and numbers are 1, 2, ... there; here a live is `t/L1`, a Worker `w1#1`, its boot `boot-1`. Records are
kept as tuples, in the order of the fields below; `by_name` puts them into the order in which tlc.py reads TLC's.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from dhsched.ownership.state import Live, Worker

Table = tuple[tuple[str, ...], ...]
"""A slot table: rows of numbers, one row per live."""

STORE = ("lives", "slots", "workers", "base", "floor", "term", "home")
LIVE = (
    *("st", "epoch", "issued", "sel", "active", "pull"),
    *("target", "number", "hold", "note", "stalled", "due", "waits"),
)
WORKER = ("st", "mode", "lost")
AGENT = ("proc", "table", "runs", "fin", "said", "late", "fresh", "done")
DUE = LIVE.index("due")
NO_LIVE = ("none", 0, 0, 0, 0, 0, 0, 0, False, False, False, False, False)
INVARIANTS = ("I", "Final", "Floor", "Need", "Once", "Order", "Repeat", "Slots")


def home_id(number: int) -> str:
    """The name of the home that has this block of numbers; the first has none."""
    return f"h{number}" if number else ""


def home_number(home: str) -> int:
    return int(home[1:] or 0)


def live_id(number: int) -> str:
    return f"t/L{number}"


def worker_id(number: int) -> str:
    return f"w{number}#1"


def boot(number: int) -> str:
    return f"boot-{number}"


def worker_number(worker: str | None) -> int:
    return int(worker[1 : worker.index("#")]) if worker else 0


def changed(values: tuple[Any, ...], position: int, value: Any) -> tuple[Any, ...]:
    """The same values with another one at a position that counts from 1."""
    return (*values[: position - 1], value, *values[position:])


def named(problems: Iterable[str]) -> tuple[str, ...]:
    """Every problem begins with the name of its invariant; the moves and counters of invariants.py get theirs here."""
    return tuple(
        problem
        if problem.startswith(INVARIANTS)
        else f"Moves: {problem}"
        if problem.startswith("moves")
        else f"Counters: {problem}"
        for problem in problems
    )


def shape_of_live(record: Live | None, due: bool) -> tuple[Any, ...]:
    if record is None:
        return NO_LIVE
    move = record.move
    return (
        record.state,
        record.epoch,
        record.issued,
        worker_number(record.selected),
        worker_number(record.active),
        record.pull_no,
        worker_number(move.target) if move else 0,
        move.number if move else 0,
        move is not None and move.hold is not None,
        record.note is not None and record.note[0] == record.cursors,
        record.stalled is not None and record.stalled == record.cursors,
        due,
        bool(record.waits),
    )


def shape_of_worker(record: Worker | None, registered: bool) -> tuple[Any, ...]:
    if record is None:
        return ("over" if registered else "none", "ready", False)
    return ("gone" if record.gone else "up" if record.beat else "new", record.mode, record.lost)


def for_agent(table: Table) -> Table:
    """What an agent acts on: whether a slot is claimed makes no difference to it."""
    return tuple(tuple("starting" if slot == "running" else slot for slot in row) for row in table)


@cache
def by_name(fields: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A record's values in the order of its fields' names."""
    return tuple(value for _, value in sorted(zip(fields, values, strict=True), key=lambda field: field[0]))


@cache
def store_by_name(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    lives, slots, workers, *cell = shape
    inner = (tuple(by_name(LIVE, live) for live in lives), slots, tuple(by_name(WORKER, w) for w in workers), *cell)
    return by_name(STORE, inner)
