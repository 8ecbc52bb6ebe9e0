"""Traces: a trace for each generation, with its phases as spans, sent to an OpenTelemetry collector by OTLP.

    recovery                    lost, placed anew, claimed, first ack
      detect                    the source is silent until it is called lost
      place                     until the next generation is committed
        wait                    the part of that without a free slot
      claim                     until the Worker has claimed the generation
      first ack                 until its runtime has acked an item

A trace is made when its generation has its first ack, or is followed no further (handoffs.py), from the times that the
store has dated (history.py). So nothing on the way of a request waits for it, or knows of it. The spans belong to the
caller's trace where the request had a `traceparent`; else the id of the trace is computed from the operation, which the
history and the fleet events name. A replica that is killed sends no more traces of what it has committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dhsched.client.models.lives import HistoryRow
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.loops import Round
from dhsched.dispatch.telemetry.handoffs import Begun
from dhsched.dispatch.telemetry.history import history_of
from dhsched.errors import StoreError
from dhsched.web.otlp import FLUSH_S, Phase, Send, open_sender
from dhsched.web.traceparent import read_traceparent

TRACES_S = 1.0  # Time between two rounds.
AT_ONCE = 64  # Generations whose history is read in one round; the others wait for the next one.
NAMES = {"create": "create", "reassign": "reassign", "recover": "recovery", "drain": "move", "rebalance": "move"}


def phases_of(begun: Begun, row: HistoryRow) -> list[Phase]:
    """Return the spans of a generation, the whole one first. Phases that are not known or not over are left out."""
    committed = row.committed_at_ms
    parts: list[Phase] = []
    if row.place_ms is not None:
        lost = committed - row.place_ms
        if row.detect_ms is not None:
            parts.append(Phase("detect", lost - row.detect_ms, lost))
        parts.append(Phase("place", lost, committed))
    elif begun.reserved_at_ms:
        parts.append(Phase("prepare", min(begun.reserved_at_ms, committed), committed))
    else:
        parts.append(Phase("place", committed - begun.took_ms, committed))
    if row.wait_ms is not None:
        parts.append(Phase("wait", committed - row.wait_ms, committed, within=len(parts)))
    if row.claim_ms is not None:
        parts.append(Phase("claim", committed, committed + row.claim_ms))
        if row.first_ack_ms is not None:
            claimed = committed + row.claim_ms
            parts.append(Phase("first ack", claimed, claimed + row.first_ack_ms))
    name = NAMES.get(row.cause, row.cause)
    whole = Phase(name, min(each.began_ms for each in parts), max(each.ended_ms for each in parts))
    return [whole, *parts]


def trace_id_of(operation: str) -> int:
    """Return the id of the trace of a generation whose request had none. It is never 0."""
    return int.from_bytes(hashlib.sha256(operation.encode()).digest()[:16], "big") or 1


def attributes_of(live: str, row: HistoryRow) -> dict[str, str | int]:
    """Return the attributes of a generation's span, without empty ones."""
    known: dict[str, str | int] = {
        "dhsched.live": live,
        "dhsched.epoch": row.epoch,
        "dhsched.worker": row.worker,
        "dhsched.source": row.source,
        "dhsched.cause": row.cause,
        "dhsched.need": row.need,
        "dhsched.operation": row.operation,
    }
    return {name: value for name, value in known.items() if value != ""}


class Traces:
    """The traces of one replica. `send` gets the phases, the id of the trace, its caller's span, and the attributes."""

    def __init__(self, context: DispatchContext, send: Send) -> None:
        self._context = context
        self._send = send

    async def round(self) -> None:
        """Make the traces of generations whose last phase is over, or is waited for no longer."""
        over = self._context.handoffs.over
        await asyncio.gather(*(self._trace(over.popleft()) for _ in range(min(AT_ONCE, len(over)))))

    async def _trace(self, begun: Begun) -> None:
        parent = read_traceparent(begun.parent)
        if parent is not None and not parent.sampled:
            return
        record = await self._context.records.lives.get(begun.live)
        rows = [] if record is None else await history_of(self._context, begun.live, record)
        for row in rows:
            if row.epoch == begun.epoch:
                trace_id = trace_id_of(row.operation) if parent is None else parent.trace_id
                self._send(phases_of(begun, row), trace_id, parent, attributes_of(begun.live, row))


@asynccontextmanager
async def tracing(context: DispatchContext) -> AsyncIterator[dict[str, tuple[Round, float]]]:
    """Yield the loop that sends the traces of a replica, by its name; none where no collector is set."""
    if not context.settings.otlp:
        yield {}
        return
    async with open_sender(context.settings.otlp, "dhsched-dispatch", context.replica) as send:
        traces = Traces(context, send)
        yield {"traces": (traces.round, TRACES_S)}
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await context.handoffs.round()
                await traces.round()
