"""What the servers answer, as the client gives it. Fields that a newer server adds are ignored."""

from __future__ import annotations

from typing import Any

import msgspec


class Generation(msgspec.Struct, frozen=True):
    """Who may consume a live's input."""

    worker: str
    epoch: int


class Placed(msgspec.Struct, frozen=True):
    """Where a live was placed. `again`: an earlier try of this very call had done it."""

    live_id: str
    worker: str
    epoch: int
    again: bool = False
    superseded_by: Generation | None = None


class Ended(msgspec.Struct, frozen=True):
    """The live's state after the call: `ended`, or `closing` while its pending input is worked off."""

    live_id: str
    state: str


class LiveSummary(msgspec.Struct, frozen=True):
    """A live in a list."""

    live_id: str
    digital_id: str
    state: str
    worker: str
    epoch: int
    active: bool
    pending: int
    waiting: bool


class Live(msgspec.Struct, frozen=True):
    """One live. `appended`, `released` and `acked` are numbers of items; times are the store's, in milliseconds."""

    live_id: str
    digital_id: str
    room: str
    state: str
    worker: str
    epoch: int
    active: bool
    priority: int
    immovable: bool
    metadata: dict[str, Any]
    config: dict[str, Any]
    cause: str
    committed_at_ms: int
    claimed_at_ms: int
    appended: int
    released: int
    acked: int
    pending: int
    dropped: dict[str, int]
    dead_letters: int
    stalled: bool
    waiting_for: list[str]


class HistoryRow(msgspec.Struct, frozen=True):
    """One generation of a live; a time is 0 where it never happened. `reason` is how its runtime ended, untold to."""

    epoch: int
    worker: str
    cause: str
    committed_at_ms: int
    claimed_at_ms: int
    first_ack_at_ms: int
    reason: str = ""


class History(msgspec.Struct, frozen=True):
    """A live's generations, the current one first."""

    live_id: str
    generations: list[HistoryRow]


class Worker(msgspec.Struct, frozen=True):
    """A Worker. `status` is `ready` when it takes new lives, else why not."""

    worker: str
    pool: str
    status: str
    load: int
    capacity: int
    starting: int


class Drain(msgspec.Struct, frozen=True):
    """How far a drain is: of `lives` at its beginning, so many `moved`; `reasons` says what holds up the others."""

    worker: str
    mode: str
    lives: int
    moved: int
    done: bool
    reasons: dict[str, int]


class Pushed(msgspec.Struct, frozen=True):
    """The item is stored. `seq` is its number, None for a `duplicate`, which an earlier try had stored."""

    live_id: str
    request_id: str = ""
    seq: int | None = None
    duplicate: bool = False
