"""The history of a live: a row per generation, with its cause and how long each phase took.

The store keeps the times of commit, claim and first ack of each generation. For a recovered generation, the time until
the loss was noticed and the wait for a free slot are in the fleet's event log, as far as the log reaches back; they are
looked up there around the time of the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dhsched.client.models import lives as m
from dhsched.dispatch.context import DispatchContext
from dhsched.ownership.state import Live, Row
from dhsched.store.records.events import Event

AROUND_MS = 5_000  # An event written later than this after its step is not found: the row lacks its phases.
LOOKED_AT_MAX = 500  # Events read for one row; an event behind these is not found.
RECOVERED = ("live_recovered", "live_recovered_after_waiting")


async def history_of(context: DispatchContext, live: str, record: Live) -> list[m.HistoryRow]:
    """Return a row for each generation of the live, the current one first."""
    rows = (record.current, *reversed(record.history))
    told = await asyncio.gather(*(_recovery(context, live, row) for row in rows))
    detected = await asyncio.gather(*(_detected_ms(context, event) for event in told))
    sources = [*(row.worker for row in rows[1:]), ""]
    return [
        phases(row, source, event, detect_ms)
        for row, source, event, detect_ms in zip(rows, sources, told, detected, strict=True)
    ]


def phases(row: Row, source: str, event: Event | None = None, detect_ms: int | None = None) -> m.HistoryRow:
    """Return the row of one generation. `event` is the event of its recovery, `detect_ms` how long its source had been
    silent when it was called lost."""
    numbers = {} if event is None else event.numbers
    lost_at, waited_since = numbers.get("lost_at_ms"), numbers.get("waiting_since_ms")
    return m.HistoryRow(
        epoch=row.epoch,
        worker=row.worker,
        source=source,
        cause=row.cause,
        need=str(numbers.get("need", "")),
        operation=row.operation,
        committed_at_ms=row.committed_at,
        claimed_at_ms=row.claimed_at,
        first_ack_at_ms=row.first_ack_at,
        detect_ms=detect_ms,
        place_ms=row.committed_at - lost_at if isinstance(lost_at, int) else None,
        wait_ms=row.committed_at - waited_since if isinstance(waited_since, int) else None,
        claim_ms=row.claimed_at - row.committed_at if row.claimed_at else None,
        first_ack_ms=row.first_ack_at - row.claimed_at if row.first_ack_at and row.claimed_at else None,
        reason=row.reason,
    )


async def _recovery(context: DispatchContext, live: str, row: Row) -> Event | None:
    def is_it(event: Event) -> bool:
        return event.kind in RECOVERED and event.live == live and event.numbers.get("operation") == row.operation

    return await _find(context, row.committed_at, is_it) if row.cause == "recover" else None


async def _detected_ms(context: DispatchContext, recovered: Event | None) -> int | None:
    """Return for how many ms the source had been silent when it was called lost; None if the log does not have it."""
    lost_at = None if recovered is None else recovered.numbers.get("lost_at_ms")
    if recovered is None or not isinstance(lost_at, int):
        return None
    source = recovered.numbers.get("source")
    found = await _find(context, lost_at, lambda event: event.kind == "worker_lost" and event.worker == source)
    silent_s = None if found is None else found.numbers.get("silent_s")
    return int(silent_s * 1000) if isinstance(silent_s, (int, float)) else None


async def _find(context: DispatchContext, at_ms: int, wanted: Callable[[Event], bool]) -> Event | None:
    found = await context.records.events.after(str(at_ms - 1), LOOKED_AT_MAX, until=str(at_ms + AROUND_MS))
    return next((each.event for each in found if wanted(each.event)), None)
