"""Changes a Worker's slots and lives when the Worker comes, goes or loses a runtime.

`lost` is not a verdict: it stops placement and puts lives on the agenda, and a report clears it. Only `gone` is final,
and only a Worker's own side (a new boot on its device, a clean exit), an operator (a revoked key, a banned name) or
long silence with nothing left on it makes it so. A runtime that still runs on a Worker that an operator made gone is
fenced like that of a lost Worker.
"""

from __future__ import annotations

from dhsched.ownership.draft import Draft
from dhsched.types import OWNED


def enter_free(s: Draft, worker: str) -> None:
    """The Worker became placeable: it has a free slot, and those who wait for a free slot are due."""
    s.touch(worker)
    s.write_free(worker)
    record = s.workers[worker]
    s.wake_waiting(record.pool, min(record.capacity - record.load, s.limits.walk_max))
    wake_own(s, worker)


def wake_own(s: Draft, worker: str) -> None:
    """Make the Worker's own waiting lives due: they may need no other Worker any more, or find a slot here."""
    for live, _, slot in s.table(worker):
        if slot in OWNED and s.lives[live].waits:
            s.look_by(live, s.now)


def make_gone(s: Draft, worker: str) -> None:
    """End the boot for good. Its lives are unowned until they are placed; none of its slots is left to depart."""
    record = s.workers[worker]
    if record.gone:
        return
    s.clear_moves_to(worker)
    record = s.set_worker(worker, gone=True)
    s.boots.pop(record.boot, None)
    s.touch(worker)
    s.write_free(worker)
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
    """Mark that the current generation has no runtime any more, and never will have one again."""
    s.write_slot(worker, live, number, "vacant")
    s.set_live(live, active=None, pull_no=s.lives[live].pull_no + 1, note=None, stalled=None)
