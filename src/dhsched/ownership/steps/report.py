"""report: count a Worker's beat. It clears `lost`, which is no verdict: a silent Worker may come back."""

from __future__ import annotations

from collections.abc import Iterable

from dhsched.ownership import state as state_of
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Gone, Reported, ReportOutcome
from dhsched.ownership.poison import take_back
from dhsched.ownership.presence import enter_free, wake_own
from dhsched.ownership.state import State
from dhsched.types import SlotState, split_tag


def report(
    state: State,
    now: int,
    limits: Limits,
    *,
    worker: str,
    boot: str,
    home: str = "",
    term: int = 0,
    rev: int = 0,
    link: str = "",
    busy: Iterable[str] = (),
    partly: bool = False,
    starts_create: int = 0,
    starts_recover: int = 0,
    cutovers: int = 0,
) -> tuple[State, ReportOutcome]:
    """Count a Worker's beat. `home`, `term` and `rev` are of the slot table that it has, and are compared for equality
    only: a reporter that seems to be ahead has seen what the store forgot. `busy` are slots that need time. With
    `partly` the reporter can apply what has changed since its revision to the table that it has. `starts_create`,
    `starts_recover` and `cutovers` are the limits of the Worker's Pool; 0 where the Pool has none of its own."""
    s = Draft(state, now, limits)
    record = s.workers.get(worker)
    if record is None or record.gone or record.boot != boot:
        return state, Gone()
    fresh = not record.placeable
    revived = record.lost
    record = s.set_worker(worker, beat=record.beat + 1, lost=False, lost_at=0, link=link)
    s.set_limits(worker, starts_create=starts_create, starts_recover=starts_recover, cutovers=cutovers)
    s.write_free(worker)
    if fresh and record.placeable:
        enter_free(s, worker)
    elif revived:
        s.touch(worker)
        wake_own(s, worker)
    if revived:
        take_back(s, worker)
    for tag in busy:
        stop_clock(s, worker, tag)
    known = (home, term, rev) == (s.cell.home, s.cell.term, record.slots_rev)
    slots = s.slots.get(worker, {})
    table: dict[str, SlotState | None] | None = None if known else {**slots}
    base = 0
    if partly and (home, term) == (s.cell.home, s.cell.term) and 0 < rev < record.slots_rev:
        revs = s.slot_revs.get(worker, {})
        if len(revs) < state_of.SLOT_REVS_MAX or rev >= min(revs.values()):
            base, table = rev, {tag: slots.get(tag) for tag, changed in revs.items() if changed > rev}
    return s.done(), Reported(record.beat, s.cell.home, s.cell.term, record.slots_rev, record.mode, table, base)


def stop_clock(s: Draft, worker: str, tag: str) -> None:
    """Forget the noted standstill of a live that needs time. A start may take only so long; the SDK bounds the rest."""
    live, number = split_tag(tag)
    record = s.lives.get(live)
    if record is None or record.generation.worker != worker or record.epoch != number or record.note is None:
        return
    if record.active is None and s.now >= record.current.committed_at + s.limits.start_wait_max_ms:
        return
    s.set_live(live, note=None)
