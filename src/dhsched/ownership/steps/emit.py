"""emit: a runtime's message to its application is stored, behind the same fence as an ack."""

from __future__ import annotations

from dhsched.ownership.draft import Draft
from dhsched.ownership.fence import guard
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import EmitOutcome, Emitted, Gap, Stale
from dhsched.ownership.state import State


def emit(
    state: State,
    now: int,
    limits: Limits,
    *,
    live: str,
    worker: str,
    epoch: int,
    n: int,
    name: str,
    data: bytes,
    told: int = 0,
) -> tuple[State, EmitOutcome]:
    """Store message n of a generation, once and in order.

    `told` is the last message that the runtime knows to be stored: if the store has fewer, it has lost some, and goes
    on without those.
    """
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    refused = guard(s, record, worker, epoch)
    if record is None or refused is not None:
        return state, refused or Stale(None)
    if record.active != worker:
        return state, Stale(record.generation, record.pull_no)
    last = record.emitted[1] if record.emitted[0] == epoch else 0
    if n <= last:
        return state, Emitted(last)
    if n > max(last, told) + 1:
        return state, Gap(last)
    kept = [*record.emits, stored_emit(epoch, n, name, data)]
    while len(kept) > limits.emits_max or sum(map(len, kept)) > limits.emits_bytes_max:
        del kept[0]
    s.set_live(live, emitted=(epoch, n), emits=tuple(kept))
    return s.done(), Emitted(n)


def stored_emit(epoch: int, n: int, name: str, data: bytes) -> bytes:
    """Return a message as the store keeps it: `epoch n name data`."""
    return b"%d %d %b %b" % (epoch, n, name.encode(), data)


def read_emit(stored: bytes) -> tuple[int, int, str, bytes]:
    """Return epoch, n, name and data of a stored message."""
    epoch, n, name, data = stored.split(b" ", 3)
    return int(epoch), int(n), name.decode(), data
