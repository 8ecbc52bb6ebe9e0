"""The fleet: lives that must be placed anew, and the log of events."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dhsched.client.models.base import UNSET, CellName, LeftOut, Optional

Value = str | int | float | bool | list[str]


class LineOut(msgspec.Struct, frozen=True):
    """A position in the queue for a free slot in a Pool; 1 is next."""

    pool: str
    place: int
    of: int


class RecoveryOut(msgspec.Struct, frozen=True):
    """A live that must be placed anew. Times are the store's, in milliseconds, 0 where unknown.

    `need` is lost, gone, vacant (its runtime ended), stalled, floor (an operator began a term), or `well again` if the
    live only waits for one more check. `source` is the Worker that the live must leave. `unplaceable` says why no
    Worker may take the live as configured (then it waits in no queue until that changes); empty if some Worker may.
    """

    tenant: str
    live_id: str
    digital_id: str
    priority: int
    source: str
    epoch: int
    need: str
    since_ms: int
    tries: int
    next_look_at_ms: int
    waiting_since_ms: int
    waiting_for: list[LineOut]
    unplaceable: str
    cell: CellName | Optional = UNSET


class RecoveryList(msgspec.Struct, frozen=True):
    """One page by name; it may be short, or empty. `waiting` counts all waiting lives, by Pool."""

    recoveries: list[RecoveryOut]
    waiting: dict[str, int]
    next: str | None
    cells_left_out: LeftOut | Optional = UNSET


class EventOut(msgspec.Struct, frozen=True):
    """One event: its Worker, its live, the replica that recorded it, who asked for it, and the numbers of its kind.

    `by` is the id of an API key, or a WorkerID; empty if nobody asked.
    """

    id: str
    at_ms: int
    kind: str
    replica: str
    by: str
    worker: str
    tenant: str
    live_id: str
    numbers: Mapping[str, Value]
    cell: CellName | Optional = UNSET


class EventList(msgspec.Struct, frozen=True):
    """Events, the oldest first. `last` is the cursor to go on after; null if there was never an event."""

    events: list[EventOut]
    last: str | None
    cells_left_out: LeftOut | Optional = UNSET
