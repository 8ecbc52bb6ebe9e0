"""append_input: accept one item of input. Accepted means stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dhsched.ownership import items
from dhsched.ownership.draft import Draft
from dhsched.ownership.fence import fits
from dhsched.ownership.items import Through
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import (
    Appended,
    AppendOutcome,
    Closing,
    Duplicate,
    Ended,
    Gap,
    Items,
    NotFound,
    TooManyPending,
    TooManyProducers,
)
from dhsched.ownership.state import Cursors, Live, State, frozen
from dhsched.ownership.steps.release_input import release_input
from dhsched.types import Kind


def append_input(
    state: State,
    now: int,
    limits: Limits,
    *,
    live: str,
    kind: Kind,
    payload: bytes,
    boundary: bool = False,
    producer: str = "",
    n: int = 0,
    request: str = "",
    mark: bytes = items.UNMARKED,
    through: Through | None = None,
    credit: int = 0,
) -> tuple[State, AppendOutcome]:
    """Accept one item: by (producer, n) from a stream, or by request id. Accepted means stored.

    With `through` the item is released as well, if release_input, called next with these arguments, would release this
    item alone.
    """
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None:
        return state, NotFound()
    if record.state == "ended":
        return state, Ended()
    last = record.producers.get(producer, (0, 0, 0))[0]
    if (producer and n <= last) or (request and request in record.recent):
        known = record.producers.get(producer)
        s.wake_controller(live)  # Who sends it again was not told that it is stored, and perhaps nobody was.
        return s.done(), Duplicate(known[1] if known and known[0] == n else 0)
    if record.state == "closing":
        return state, Closing()
    if producer and n > last + 1:
        return state, Gap(last)
    pending = record.appended - record.acked
    if kind != "interrupt" and pending >= limits.pending_max:
        return state, TooManyPending(pending)
    if producer:
        producers = remember_producer(record.producers, producer, n, record.appended + 1, now, limits)
        if producers is None:
            return state, TooManyProducers(len(record.producers))
        s.set_live(live, producers=producers)
    else:
        s.set_live(live, recent=remember_request(record.recent, request, now, limits))
    if kind == "interrupt":
        interrupt(s, live, payload, mark)
    else:
        stored = items.stored(kind, payload, boundary, mark)
        s.set_live(live, appended=record.appended + 1, pending=(*record.pending, stored))
        if kind == "config":
            s.set_live(live, config_next=record.appended + 1)
    if pending == 0:
        s.look_by(live, now + limits.ack_wait_ms)
    stored_as = Appended(s.lives[live].appended, dropped=pending if kind == "interrupt" else 0)
    if through is not None and kind != "interrupt" and waits_for_next(record, through):
        after, released = release_input(s.done(), now, limits, live=live, **through._asdict(), credit=credit)
        if isinstance(released, Items):
            return after, Appended(stored_as.seq, mark)
    s.wake_controller(live)
    return s.done(), stored_as


def waits_for_next(record: Live, through: Through) -> bool:
    """Return whether this pull has been passed every item of the queue, whatever the queue holds back from it aside."""
    freely = record.suspect is None and (record.move is None or record.move.hold is None)
    everything = 0 < through.after == record.released == record.appended
    return freely and everything and fits(record, through.after, through.mark)


def interrupt(s: Draft, live: str, payload: bytes, mark: bytes) -> None:
    """Append an interrupt: drop every unacked item before it, released or not, so that the interrupt is next.

    An interrupt is no progress of the runtime, so a standstill that was noted goes on.
    """
    record = s.lives[live]
    n = record.appended + 1
    stored = items.stored("interrupt", payload, True, mark)
    passed_config = record.config_next > record.acked
    if passed_config:
        passed = items.read(record.pending[record.config_next - record.acked - 1])
        stored = items.with_config(payload, passed.config or b"", mark)
    move = record.move
    if move is not None and isinstance(move.hold, int):
        move = replace(move, hold=n)
    released = max(record.released, n - 1)
    # If the interrupt before is dropped too, what that dropped and what this drops is one range.
    after = record.interrupted[1] if record.interrupted[0] > record.acked else record.acked
    stands = Cursors(record.epoch, n - 1)
    s.set_live(
        live,
        appended=n,
        released=released,
        acked=n - 1,
        acked_mark=items.mark_of(record.pending[-1]) if record.pending else record.acked_mark,
        at_boundary=record.at_boundary and released == record.released,
        pending=(stored,),
        dropped_interrupt=record.dropped_interrupt + n - 1 - record.acked,
        config_next=n if passed_config else record.config_next,
        suspect=None,
        interrupted=(n, after),
        move=move,
        note=(stands, record.note[1]) if record.note and record.note[0] == record.cursors else record.note,
        stalled=stands if record.stalled == record.cursors else record.stalled,
    )


def remember_producer(
    known: Mapping[str, tuple[int, int, int]], producer: str, n: int, seq: int, now: int, limits: Limits
) -> Mapping[str, tuple[int, int, int]] | None:
    """Return the producers with this one at n, item `seq`; past `producers_max` it replaces the longest silent, or None
    is returned if that one is not yet `recent_ms` old."""
    producers = dict(known)
    if producer not in producers and len(producers) >= limits.producers_max:
        _, since, oldest = min((seq, since, name) for name, (_, seq, since) in producers.items())
        if now - since < limits.recent_ms:
            return None
        del producers[oldest]
    since = known[producer][2] if producer in known else now
    producers[producer] = (n, seq, since)
    return frozen(producers)


def remember_request(known: Mapping[str, int], request: str, now: int, limits: Limits) -> Mapping[str, int]:
    """Return the request ids with this one; up to two old ones leave, so the memory shrinks faster than it grows."""
    recent = {**known, request: now}
    for _ in range(2):
        at, oldest = min((at, request) for request, at in recent.items())
        outlived = len(recent) > limits.recent_min and now - at >= limits.recent_ms
        if outlived or len(recent) > limits.recent_max:
            del recent[oldest]
    return frozen(recent)
