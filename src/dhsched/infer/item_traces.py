"""Traces of items: a push with a `traceparent` header leads to spans in the trace of its caller.

    append        the request was read until the store has the item
      deliver     then, until the item was sent to the Worker that has the live
      ack         then, until the store has the ack that includes the item
      emit        a message of the runtime about the item arrived until the store has it

The item carries its trace to the Worker inside its stored form (ownership/items.py), so that any controller can release
it. The trace names the span `append`, under which the other spans are, and those of the runtime itself
(`Item.traceparent`). A caller's header and a Worker's numbers are not trusted: a header decides nothing but the ids of
spans, and a Worker can name only items that were sent to it. What is known of items in flight is bounded, and is
lost with the controller: then spans are missing, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import NamedTuple

from dhsched.access.bucket import Bucket
from dhsched.links.messages import Items
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import trace_of
from dhsched.store.steps.redis import Ack, Emit
from dhsched.web.otlp import Phase, Send
from dhsched.web.traceparent import Parent, read_traceparent

TRACED_PER_S = 200.0  # Items that one controller traces per second; the pushes of further ones are not traced.
LIVES_MAX = 10_000  # Lives with traced items in flight; past this the one that was begun first gets no further spans.
EMITS_MAX = 10_000  # Messages on their way to the store; past this the oldest ones get no span.
AT_BYTES = 6  # Of the trace, the last ones: milliseconds since 1970, on the clock of the controller that appended.


class Traced(NamedTuple):
    """A traced push: the span of its caller, the trace that the item carries, the start in ms."""

    caller: Parent
    trace: bytes
    began_ms: int


class Delivered(NamedTuple):
    """An item that was sent to its Worker."""

    above: Parent
    worker: str
    sent_ms: int


@dataclass(slots=True)
class InFlight:
    """The traced items of one generation that are not acked yet, and the last acked one: its messages may follow."""

    epoch: int
    items: dict[int, Delivered] = field(default_factory=dict)
    acked: int = 0


class ItemTraces:
    """The traces of one controller's items. `now_s` is the time since 1970."""

    def __init__(self, send: Send, now_s: Callable[[], float] = time.time) -> None:
        self._send = send
        self._now_s = now_s
        self._bucket = Bucket(TRACED_PER_S, now_s())
        self._rng = SystemRandom()
        self._lives: dict[str, InFlight] = {}
        self._emits: dict[tuple[str, int, int], tuple[Delivered, int]] = {}

    def begin(self, given: str) -> Traced | None:
        """Return the trace of a push with this header; None if the push is not traced."""
        if not given or (caller := read_traceparent(given)) is None or self._bucket.take(self._now_s()):
            return None
        now_ms = self._now_ms()
        # Without spans of ours the item belongs to the span of its caller.
        span_id = self._rng.getrandbits(64) or 1 if caller.sampled else caller.span_id
        ids = caller.trace_id.to_bytes(16, "big") + span_id.to_bytes(8, "big") + bytes([caller.sampled])
        return Traced(caller, ids + now_ms.to_bytes(AT_BYTES, "big"), now_ms)

    def appended(self, traced: Traced, live: str, outcome: o.AppendOutcome) -> None:
        """Send the span of a push with its outcome."""
        if not traced.caller.sampled:
            return
        known: dict[str, str | int] = {"dhsched.live": live, "dhsched.outcome": type(outcome).__name__}
        if isinstance(outcome, o.Appended):
            known["dhsched.seq"] = outcome.seq
        phase = Phase("append", traced.began_ms, max(traced.began_ms, self._now_ms()))
        span_id = int.from_bytes(traced.trace[16:24], "big")
        self._send([phase], traced.caller.trace_id, traced.caller, known, span_id=span_id)

    def delivered(self, worker: str, message: Items) -> None:
        """Send the spans of items that are sent to their Worker, and expect their acks."""
        for seq, item in enumerate(message.items, message.first):
            if not (trace := trace_of(item)) or not trace[24] & 1:
                continue
            above = Parent(int.from_bytes(trace[:16], "big"), int.from_bytes(trace[16:24], "big"), sampled=True)
            now_ms = self._now_ms()
            flight = self._flight(message.live, message.epoch)
            if seq not in flight.items:  # An item is sent again when its Worker has lost the connection.
                flight.items[seq] = sent = Delivered(above, worker, now_ms)
                pushed_ms = int.from_bytes(trace[-AT_BYTES:], "big")
                # The clock of the controller that appended may be ahead of this one.
                began_ms = min(pushed_ms, now_ms)
                self._span(
                    "deliver", sent, began_ms, message.live, message.epoch, {"dhsched.seq": seq}, ended_ms=now_ms
                )

    def acked(self, acks: Sequence[Ack], outcomes: Sequence[o.AckOutcome]) -> None:
        """Send the spans of items whose ack is stored."""
        if not self._lives:
            return
        for ack, outcome in zip(acks, outcomes, strict=True):
            flight = self._lives.get(ack.live)
            if flight is None or flight.epoch != ack.epoch or not isinstance(outcome, o.Acked):
                continue
            done = [seq for seq in flight.items if seq <= outcome.acked]
            for seq in done:
                if seq > flight.acked:
                    sent = flight.items[seq]
                    self._span("ack", sent, sent.sent_ms, ack.live, ack.epoch, {"dhsched.seq": seq})
            flight.acked = max(flight.acked, outcome.acked)
            for seq in sorted(done)[:-1]:
                del flight.items[seq]
            if outcome.ended:
                del self._lives[ack.live]

    def emitting(self, row: Emit, item: int) -> None:
        """Expect the outcome of a runtime's message about this item, if the item was sent to its generation."""
        flight = self._lives.get(row.live)
        if flight is None or flight.epoch != row.epoch or (sent := flight.items.get(item)) is None:
            return
        if sent.worker == row.worker and (row.live, row.epoch, row.n) not in self._emits:
            if len(self._emits) >= EMITS_MAX:
                del self._emits[next(iter(self._emits))]
            self._emits[row.live, row.epoch, row.n] = sent, self._now_ms()

    def emitted(self, row: Emit) -> None:
        """Send the span of a message that is stored."""
        if self._emits and (expected := self._emits.pop((row.live, row.epoch, row.n), None)) is not None:
            sent, began_ms = expected
            self._span("emit", sent, began_ms, row.live, row.epoch, {"dhsched.message": row.name})

    def _flight(self, live: str, epoch: int) -> InFlight:
        flight = self._lives.get(live)
        if flight is None or flight.epoch != epoch:
            self._lives.pop(live, None)
            if len(self._lives) >= LIVES_MAX:
                del self._lives[next(iter(self._lives))]
            flight = self._lives[live] = InFlight(epoch)
        return flight

    def _span(
        self,
        name: str,
        sent: Delivered,
        began_ms: int,
        live: str,
        epoch: int,
        more: dict[str, str | int],
        *,
        ended_ms: int | None = None,
    ) -> None:
        known = {"dhsched.live": live, "dhsched.epoch": epoch, "dhsched.worker": sent.worker, **more}
        phase = Phase(name, began_ms, max(began_ms, self._now_ms() if ended_ms is None else ended_ms))
        self._send([phase], sent.above.trace_id, sent.above, known)

    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)
