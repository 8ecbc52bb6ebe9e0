"""The steps of Workers: register_worker, report, set_worker, expire_worker, depart (docs/protocol.md, tables a and c).

`lost` is not a verdict: it stops placement and puts lives on the agenda, and a report clears it. Only `gone` is
final, and only a Worker's own side (a new boot on its device, a clean exit) or long silence with nothing left on it
makes it so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.needs import backoff_ms
from dhsched.ownership.outcomes import (
    Alive,
    Departed,
    DepartOutcome,
    Expired,
    ExpireOutcome,
    Gone,
    Moot,
    NotFound,
    Nothing,
    Registered,
    RegisterOutcome,
    Reported,
    ReportOutcome,
    RolledBack,
    SetOutcome,
    WorkerSet,
)
from dhsched.ownership.poison import take_back
from dhsched.ownership.state import State, Worker
from dhsched.types import OWNED, Mode, split_tag

Verb = Literal["cordon", "uncordon", "drain", "undrain", "exit", "reap"]
TRANSITIONS: dict[tuple[str, str], Mode] = {
    ("cordon", "ready"): "cordoned",
    ("uncordon", "cordoned"): "ready",
    ("drain", "ready"): "draining",
    ("drain", "cordoned"): "draining",
    ("undrain", "draining"): "ready",
}
"""Every other pair leaves the mode as it is: a draining Worker is cordoned already."""


def register_worker(
    state: State,
    now: int,
    limits: Limits,
    *,
    name: str,
    boot: str,
    pool: str,
    capacity: int,
    labels: str = "",
    replaces: str = "",
) -> tuple[State, RegisterOutcome]:
    """Give a boot its WorkerID. The boot it replaces on its device is gone in the same step."""
    s = Draft(state, now, limits)
    if boot in s.boots:
        known = s.boots[boot]
        return state, Registered(known, s.workers[known].mode, again=True)
    if replaces and replaces in s.workers:
        make_gone(s, replaces)
    since, boots = s.blame.get(name, (now, 0))
    if now - since >= limits.boots_window_ms:
        since, boots = now, 0
    s.blame[name] = (since, boots + 1)
    mode: Literal["ready", "cordoned"] = "cordoned" if boots + 1 > limits.boots_max else "ready"
    issued = max(s.cell.workers_issued, s.cell.epoch_floor) + 1
    s.cell = replace(s.cell, workers_issued=issued)
    worker = f"{name}#{issued}"
    s.workers[worker] = Worker(name=name, boot=boot, pool=pool, capacity=capacity, labels=labels, mode=mode)
    s.set_budgets(worker)
    s.boots[boot] = worker
    s.set_worker(worker, slots_rev=s.touch(worker))
    return s.done(), Registered(worker, mode, again=False)


def report(
    state: State,
    now: int,
    limits: Limits,
    *,
    worker: str,
    boot: str,
    term: int = 0,
    rev: int = 0,
    link: str = "",
    busy: Iterable[str] = (),
) -> tuple[State, ReportOutcome]:
    """A Worker's sign of life. `term` and `rev` are of the slot table it has; `busy` are slots that need time."""
    s = Draft(state, now, limits)
    record = s.workers.get(worker)
    if (term, rev) > (s.cell.term, s.cell.rev):
        return state, RolledBack(s.cell.term, s.cell.rev)
    if record is None or record.gone or record.boot != boot:
        return state, Gone()
    if term == s.cell.term and rev > record.slots_rev:
        return state, RolledBack(s.cell.term, s.cell.rev)
    fresh = not record.placeable
    revived = record.lost
    record = s.set_worker(worker, beat=record.beat + 1, lost=False, lost_at=0, link=link)
    if fresh and record.placeable:
        enter_room(s, worker)
    elif revived:
        s.touch(worker)
        wake_own(s, worker)
    if revived:
        take_back(s, worker)
    for tag in busy:
        stop_clock(s, worker, tag)
    known = (term, rev) == (s.cell.term, record.slots_rev)
    table = None if known else dict(s.slots.get(worker, {}))
    return s.done(), Reported(record.beat, s.cell.term, record.slots_rev, record.mode, table)


def stop_clock(s: Draft, worker: str, tag: str) -> None:
    """The Worker says that this live needs time. A start may take only so long; the SDK bounds the rest."""
    live, number = split_tag(tag)
    record = s.lives.get(live)
    if record is None or record.generation.worker != worker or record.epoch != number or record.note is None:
        return
    if record.active is None and s.now >= record.current.committed_at + s.limits.start_wait_max_ms:
        return
    s.set_live(live, note=None)


def enter_room(s: Draft, worker: str) -> None:
    """The Worker became placeable: it has room, and those who wait for room are due."""
    s.touch(worker)
    s.write_room(worker)
    record = s.workers[worker]
    s.wake_waiting(record.pool, min(record.capacity - record.load, s.limits.walk_max))
    wake_own(s, worker)


def wake_own(s: Draft, worker: str) -> None:
    """Its own lives that wait for another place may not need one any more, or have it here: look now."""
    for live, _, slot in s.table(worker):
        if slot in OWNED and s.lives[live].waits:
            s.look_by(live, s.now)


def set_worker(state: State, now: int, limits: Limits, *, worker: str, verb: Verb) -> tuple[State, SetOutcome]:
    """An operator's or the Worker's own wish. Saying it twice is saying it once."""
    s = Draft(state, now, limits)
    record = s.workers.get(worker)
    if record is None or record.gone:
        return state, NotFound()
    if verb in ("exit", "reap"):
        if verb == "reap" and not reapable(s, worker):
            return state, Moot()
        make_gone(s, worker)
        return s.done(), WorkerSet(record.mode, gone=True)
    mode = TRANSITIONS.get((verb, record.mode))
    if mode is None:
        return state, WorkerSet(record.mode, gone=False)
    if verb == "undrain":
        for live, _, slot in s.table(worker):
            if slot in OWNED:
                s.clear_move(live)
    record = s.set_worker(worker, mode=mode)
    if record.placeable:
        enter_room(s, worker)
    else:
        s.touch(worker)
        s.write_room(worker)
        s.clear_moves_to(worker)
    return s.done(), WorkerSet(record.mode, gone=False)


def reapable(s: Draft, worker: str) -> bool:
    record = s.workers[worker]
    owned = any(slot in OWNED for _, _, slot in s.table(worker))
    return record.lost and s.now >= record.lost_at + s.limits.reap_ms and not owned


def make_gone(s: Draft, worker: str) -> None:
    """The boot is over, for good. Its lives are unowned until they are placed; nothing of it is left to depart."""
    record = s.workers[worker]
    if record.gone:
        return
    s.clear_moves_to(worker)
    record = s.set_worker(worker, gone=True)
    s.boots.pop(record.boot, None)
    s.touch(worker)
    s.write_room(worker)
    if record.load == 0:
        s.forget_worker(worker)
        return
    for live, number, slot in s.table(worker):
        if slot == "departing":
            s.write_slot(worker, live, number, None)
        elif slot in ("starting", "running"):
            vacate(s, worker, live, number)
            s.look_by(live, s.now)


def vacate(s: Draft, worker: str, live: str, number: int) -> None:
    """The current generation has no runtime any more, and never will have one again."""
    s.write_slot(worker, live, number, "vacant")
    s.set_live(live, active=None, pull_no=s.lives[live].pull_no + 1, note=None, stalled=None)


def expire_worker(state: State, now: int, limits: Limits, *, worker: str, beat: int) -> tuple[State, ExpireOutcome]:
    """Call a Worker lost that has not reported since `beat`. Its lives go on the agenda; its slots stay."""
    s = Draft(state, now, limits)
    record = s.workers.get(worker)
    if record is None or record.gone or record.lost:
        return state, Nothing()
    if record.beat != beat:
        return state, Alive(record.beat)
    s.clear_moves_to(worker)
    s.set_worker(worker, lost=True, lost_at=now)
    s.touch(worker)
    s.write_room(worker)
    lives = [live for live, _, slot in s.table(worker) if slot in OWNED]
    for live in lives:
        s.look_by(live, now)
    return s.done(), Expired(len(lives))


def depart(
    state: State, now: int, limits: Limits, *, worker: str, live: str, number: int, reason: str = ""
) -> tuple[State, DepartOutcome]:
    """The Worker does not run `live@number`, and in this boot never will again. `reason` is how that came."""
    s = Draft(state, now, limits)
    slot = s.slot(worker, live, number)
    if slot is None or slot == "vacant":
        return state, Nothing()
    if slot == "departing":
        s.write_slot(worker, live, number, None)
    elif slot == "reserved":
        s.clear_move(live, slot=False)
        s.write_slot(worker, live, number, None)
    else:
        vacate(s, worker, live, number)
        record = s.set_live(live, current=replace(s.lives[live].current, reason=reason))
        claimed_at = record.current.claimed_at
        if claimed_at and now - claimed_at >= limits.backoff_max_ms:
            record = s.set_live(live, starts=0)  # It lived for longer than it could be made to wait.
        # A runtime that dies before its first ack, again and again, is not placed again at once.
        wait = 0 if record.starts == 0 or record.move else backoff_ms(record.starts - 1, limits)
        s.look_at(live, now + wait)
    return s.done(), Departed(slot)
