"""The log of fleet events: one bounded stream per cell, for people (docs/reference/state.md, `events`).

Nothing is decided by it. An entry's id is the store's time in milliseconds and a number, so the id is both the time of
the event and the cursor from which a reader goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dhsched.store.link.link import Arg
from dhsched.store.records.part import Part

EVENTS_MAX = 10_000  # Older events are dropped; the server may keep up to one internal node more.
FIELD = "event"

Value = str | int | float | bool | list[str]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event as stored in the stream. `live` is the full name, with its tenant. `by` is the id of the key that asked
    for it, or the Worker's; empty if a replica did it by itself."""

    kind: str
    replica: str
    worker: str = ""
    live: str = ""
    numbers: Mapping[str, Value] = {}
    by: str = ""


class Logged(msgspec.Struct, frozen=True):
    """An event with its position in the stream."""

    id: str
    event: Event

    @property
    def at_ms(self) -> int:
        return int(self.id.partition("-")[0])


_decoder = msgspec.json.Decoder(Event)


class EventRecords(Part):
    """The log of fleet events of a cell."""

    def write(self, events: Sequence[Event], /, *, deadline_s: float) -> asyncio.Future[Any]:
        """Add events and drop the oldest beyond EVENTS_MAX."""
        log: list[Arg] = ["events", FIELD, EVENTS_MAX]
        entries = map(msgspec.json.encode, events)
        return self._link.run("write_log", [self._keys.cell], [*log, *entries], deadline_s=deadline_s)

    async def after(self, cursor: str, limit: int, *, until: str = "+") -> list[Logged]:
        """Return events after the cursor, the oldest first."""
        return decode(await self._call("XRANGE", "events", "", f"({cursor}", until, "COUNT", limit))

    async def last(self, limit: int) -> list[Logged]:
        """Return the latest events, the oldest of them first."""
        return decode(await self._call("XREVRANGE", "events", "", "+", "-", "COUNT", limit))[::-1]


def decode(entries: Any) -> list[Logged]:
    return [Logged(entry_id.decode(), _decoder.decode(fields[1])) for entry_id, fields in entries]
