"""The steps of the input path: append_input, pull, release_input, ack_input (docs/protocol.md, table d).

The fence is `guard`: a release or an ack passes only for the generation that is current, claimed, above the floor
and, for a release, for its latest pull. An old runtime may live on; it gets nothing. Behind the fence, `fits` compares
histories: a runtime that has items which the store has not, or has otherwise, gets nothing either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dhsched.ownership import items
from dhsched.ownership.draft import Draft
from dhsched.ownership.ending import finish
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import (
    Acked,
    AckOutcome,
    Ahead,
    Appended,
    AppendOutcome,
    Closing,
    Duplicate,
    Ended,
    Gap,
    Items,
    NotFound,
    Nothing,
    Pulling,
    PullOutcome,
    ReleaseOutcome,
    RolledBack,
    Stale,
    TooManyPending,
    TooManyProducers,
)
from dhsched.ownership.state import Cursors, Live, State, frozen
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
) -> tuple[State, AppendOutcome]:
    """Accept one item: by (producer, n) from a stream, or by request id. Accepted means stored."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None:
        return state, NotFound()
    if record.state == "ended":
        return state, Ended()
    last = record.producers.get(producer, (0, 0, 0))[0]
    if (producer and n <= last) or (request and request in record.recent):
        return state, Duplicate()
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
    return s.done(), Appended(s.lives[live].appended)


def interrupt(s: Draft, live: str, payload: bytes, mark: bytes) -> None:
    """Everything before the interrupt that is not acked is dropped, released or not; the interrupt is next.

    It is no progress of the runtime, so a standstill that was noted goes on.
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
        move=move,
        note=(stands, record.note[1]) if record.note and record.note[0] == record.cursors else record.note,
        stalled=stands if record.stalled == record.cursors else record.stalled,
    )


def remember_producer(
    known: Mapping[str, tuple[int, int, int]], producer: str, n: int, seq: int, now: int, limits: Limits
) -> Mapping[str, tuple[int, int, int]] | None:
    """The producers with this one at n, item `seq`; one more than fit takes the place of the longest silent."""
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
    """The request ids with this one; two old ones may leave, so the memory shrinks faster than it grows."""
    recent = {**known, request: now}
    for _ in range(2):
        at, oldest = min((at, request) for request, at in recent.items())
        outlived = len(recent) > limits.recent_min and now - at >= limits.recent_ms
        if outlived or len(recent) > limits.recent_max:
            del recent[oldest]
    return frozen(recent)


def guard(s: Draft, record: Live | None, worker: str, epoch: int) -> Stale | Ended | None:
    """The fence (paper, equation 3), before `active` and the pull: None lets it pass."""
    if record is None:
        return Stale(None)
    if record.state == "ended":
        return Ended()
    if record.selected != worker or record.epoch != epoch or epoch <= s.cell.epoch_floor:
        return Stale(record.generation, record.pull_no)
    return None


def fits(record: Live, n: int, mark: bytes) -> bool:
    """Whether item n, as the caller has it, is of the history that this store has. Below `acked` nothing is known."""
    if n == 0 or n < record.acked:
        return True
    if n == record.acked:
        return mark == record.acked_mark
    return n <= record.appended and mark == items.mark_of(record.pending[n - record.acked - 1])


def forgotten(s: Draft, live: str) -> tuple[State, Stale]:
    """The runtime has items that the store has forgotten: it must stop, and what follows is no fault of an item."""
    s.set_live(live, forgot=True)
    return s.done(), Stale(None)


def pull(
    state: State,
    now: int,
    limits: Limits,
    *,
    live: str,
    worker: str,
    epoch: int,
    after: int,
    controller: str,
    mark: bytes = items.UNMARKED,
) -> tuple[State, PullOutcome]:
    """The selected Worker takes up its generation, or comes back to it (paper, algorithm 2)."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is not None and epoch > max(record.issued, s.cell.epoch_floor):
        return state, RolledBack(s.cell.term, s.cell.rev)
    refused = guard(s, record, worker, epoch)
    if record is None or refused is not None:
        return state, refused or Stale(None)
    slot = s.slot(worker, live, epoch)
    if slot not in ("starting", "running"):
        return state, Stale(record.generation, record.pull_no)
    if not fits(record, after, mark):
        return forgotten(s, live)
    if record.active is None:
        s.write_slot(worker, live, epoch, "running")
        current = replace(record.current, claimed_at=now)
        s.set_live(live, active=worker, note=None, stalled=None, current=current)
        s.leave_waiting(live)  # It was given up too early: it goes on where it is.
    # No cursor goes back. Lowering `released` to what this pull names would let a late one hide what the runtime has
    # from a planned move, which then repeats it.
    goes_on = max(record.acked, after)
    if goes_on > record.released:
        # The mark fits, so the runtime has the item: it is the release that the store has forgotten.
        s.set_live(live, released=goes_on, at_boundary=is_boundary(record, goes_on))
    record = s.set_live(live, pull_no=record.pull_no + 1, controller=controller)
    return s.done(), Pulling(
        record.pull_no, goes_on, record.digital_id, record.room, record.metadata, record.config, record.saved
    )


def release_input(
    state: State,
    now: int,
    limits: Limits,
    *,
    live: str,
    worker: str,
    epoch: int,
    pull_no: int,
    after: int,
    credit: int,
    mark: bytes = items.UNMARKED,
) -> tuple[State, ReleaseOutcome]:
    """Hand the pull what comes after `after`: never more than the credit unacked, never past a hold."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    refused = guard(s, record, worker, epoch)
    if record is None or refused is not None:
        return state, refused or Stale(None)
    if record.active != worker or record.pull_no != pull_no:
        return state, Stale(record.generation, record.pull_no)
    if not fits(record, after, mark):
        return forgotten(s, live)
    if record.suspect is not None and record.suspect[0] == record.acked + 1:
        credit = min(credit, 1)
    first = max(min(after, record.released), record.acked) + 1
    last = min(record.appended, record.acked + credit)
    hold = record.move.hold if record.move else None
    if isinstance(hold, int):
        last = min(last, hold)
    elif hold == "next":
        last = next((i for i in range(record.released + 1, last + 1) if is_boundary(record, i)), last)
    if last < first:
        return state, Nothing()
    if last > record.released:
        at_boundary = is_boundary(record, last)
        s.set_live(live, released=last, at_boundary=at_boundary)
        if hold == "next" and at_boundary and record.move is not None:
            s.set_live(live, move=replace(record.move, hold=last))
    return s.done(), Items(first, record.pending[first - record.acked - 1 : last - record.acked])


def is_boundary(record: Live, seq: int) -> bool:
    """A sentence ends here, or an interrupt stands here, or a closing live has nothing after it."""
    closes = record.state == "closing" and seq == record.appended
    return closes or record.pending[seq - record.acked - 1][0] in items.BOUNDARIES


def ack_input(
    state: State,
    now: int,
    limits: Limits,
    *,
    live: str,
    worker: str,
    epoch: int,
    n: int,
    saved: bytes | None = None,
    mark: bytes = items.UNMARKED,
) -> tuple[State, AckOutcome]:
    """The runtime has consumed everything up to n. Its small state moves with the cursor."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    refused = guard(s, record, worker, epoch)
    if record is None or refused is not None:
        return state, refused or Stale(None)
    if record.active != worker:
        return state, Stale(record.generation, record.pull_no)
    if not fits(record, n, mark):
        return forgotten(s, live)
    if n > record.released:
        return state, Ahead(record.released)
    if saved is not None and n > record.saved_seq:
        s.set_live(live, saved=saved, saved_seq=n)
    if n > record.acked:
        head_done = record.suspect is not None and record.suspect[0] <= n
        s.set_live(
            live,
            acked=n,
            acked_mark=mark,
            pending=record.pending[n - record.acked :],
            suspect=None if head_done else record.suspect,
            starts=0,
            **configured(record, n),
            current=replace(record.current, first_ack_at=record.current.first_ack_at or now),
        )
        s.leave_waiting(live)
    record = s.lives[live]
    ended = record.state == "closing" and record.acked == record.appended
    if ended:
        finish(s, live)
    return s.done(), Acked(record.acked, ended)


def configured(record: Live, n: int) -> dict[str, Any]:
    """What acks up to n make of the configuration: the last config item among them is in force.

    The one before it stays to fall back to until the next ack: only that shows that a runtime lives with the new one.
    """
    config, fallback = record.config, None
    for blob in record.pending[: n - record.acked]:
        brought = items.read(blob).config
        fallback = None if brought is None else config
        config = config if brought is None else brought
    return {"config": config, "fallback": fallback}
