"""ack_input: everything up to an item is consumed; the runtime's state and journal move with the cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dhsched.ownership import items
from dhsched.ownership.draft import Draft
from dhsched.ownership.fence import fits, forgotten, guard
from dhsched.ownership.finish import finish
from dhsched.ownership.journal import Change, changed
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Acked, AckOutcome, Ahead, Stale
from dhsched.ownership.state import Journal, Live, State


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
    journal: Change | None = None,
    mark: bytes = items.UNMARKED,
) -> tuple[State, AckOutcome]:
    """Ack everything up to item n, and save the runtime's state and what it adds to its journal with the cursor."""
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
    if journal is not None:
        written = changed(record.journal, journal, limits)
        if not isinstance(written, Journal):
            return state, written
        s.set_live(live, journal=written)
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
    """Return the configuration after acks up to n: the last config item among them is in force.

    The configuration before it stays as the fallback until another item is acked: only that shows that a runtime lives
    with the new one. Config items that follow each other leave the fallback as it was: each may be as bad as the last.
    """
    config, fallback = record.config, record.fallback
    for blob in record.pending[: n - record.acked]:
        brought = items.read(blob).config
        if brought is None:
            fallback = None
        else:
            config, fallback = brought, config if fallback is None else fallback
    return {"config": config, "fallback": fallback}
