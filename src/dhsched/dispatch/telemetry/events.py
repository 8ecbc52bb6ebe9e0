"""Fleet events: each change of the fleet, written once, by the replica whose store call made the change.

    context.events.say("worker_lost", worker=worker, beat=beat, lives=3)

`say` does not wait and does not raise. An event that cannot be written is logged and dropped. When a replica is killed
between a step and its event, the event is never written; the step's result is in the store. What the store has lost is
in no record: these events (`INSISTED`) are written again until the store has them.
"""

from __future__ import annotations

from typing import Literal, get_args

import structlog
from prometheus_client import CollectorRegistry, Counter

from dhsched.access.callers import BY
from dhsched.store.records.events import Event, EventRecords, Value
from dhsched.store.records.writer import WRITE_S, Writer

log = structlog.get_logger(__name__)

Kind = Literal[
    "worker_registered",
    "worker_lost",
    "worker_revived",
    "worker_blocked",
    "worker_gone",
    "worker_reaped",
    "worker_cordoned",
    "worker_uncordoned",
    "worker_blamed",
    "device_blamed",
    "crash_loop",
    "drain_started",
    "drain_blocked",
    "drain_cancelled",
    "drain_done",
    "forced_move",
    "live_crashed",
    "live_recovered",
    "live_waiting",
    "live_recovered_after_waiting",
    "live_unplaceable",
    "live_expired",
    "poison_dropped",
    "brake_on",
    "brake_off",
    "live_repaired",
    "store_entered",
    "store_lost",
    "new_term",
    "two_primaries",
    "drift",
]
"""docs/guides/operating.md has the meaning and the numbers of each kind; a test keeps the two lists equal."""
KINDS: tuple[str, ...] = get_args(Kind)

INSISTED: frozenset[Kind] = frozenset({"store_entered", "store_lost"})
TEXT_MAX = 500  # Characters of one text in an event; a longer text is cut off.


class Events:
    """The writer of fleet events of one replica."""

    def __init__(self, records: EventRecords, *, replica: str, registry: CollectorRegistry) -> None:
        self._replica = replica
        self._writer = Writer("event", records.write, self._drop)
        self.said = Counter(
            "dhsched_events_total", "Fleet events of this replica, by kind.", ["kind"], registry=registry
        )
        self.dropped = Counter(
            "dhsched_events_dropped_total", "Fleet events that could not be written.", registry=registry
        )

    def say(self, kind: Kind, *, worker: str = "", live: str = "", **numbers: Value) -> None:
        """Write one event, without waiting for the store."""
        short = {name: value[:TEXT_MAX] if isinstance(value, str) else value for name, value in numbers.items()}
        event = Event(kind, self._replica, worker, live, short, BY.get().who)
        self.said.labels(kind).inc()
        log.info("fleet event", kind=kind, worker=worker, live=live, numbers=short)
        self._writer.write(event, insist=kind in INSISTED)

    async def written(self, wait_s: float = WRITE_S) -> None:
        """Wait up to `wait_s` until all events are written or dropped: for a replica that stops, and for tests."""
        await self._writer.written(wait_s)

    def _drop(self, event: Event, reason: str) -> None:
        self.dropped.inc()
        log.warning(
            "an event could not be written", kind=event.kind, worker=event.worker, live=event.live, reason=reason
        )
