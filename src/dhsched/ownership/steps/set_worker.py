"""set_worker: cordon, drain and their opposites; exit and reap, after which a Worker is gone for good."""

from __future__ import annotations

from typing import Literal

from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Moot, NotFound, SetOutcome, WorkerSet
from dhsched.ownership.presence import enter_free, make_gone
from dhsched.ownership.state import State
from dhsched.types import OWNED, Mode

Verb = Literal["cordon", "uncordon", "drain", "undrain", "exit", "reap"]
TRANSITIONS: dict[tuple[str, str], Mode] = {
    ("cordon", "ready"): "cordoned",
    ("uncordon", "cordoned"): "ready",
    ("drain", "ready"): "draining",
    ("drain", "cordoned"): "draining",
    ("undrain", "draining"): "ready",
}
"""Every other pair leaves the mode as it is: a draining Worker is cordoned already."""


def set_worker(state: State, now: int, limits: Limits, *, worker: str, verb: Verb) -> tuple[State, SetOutcome]:
    """Change the Worker as an operator or the Worker itself requests. Repeating the request changes nothing."""
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
        enter_free(s, worker)
    else:
        s.touch(worker)
        s.write_free(worker)
        s.clear_moves_to(worker)
    return s.done(), WorkerSet(record.mode, gone=False)


def reapable(s: Draft, worker: str) -> bool:
    record = s.workers[worker]
    owned = any(slot in OWNED for _, _, slot in s.table(worker))
    return record.lost and s.now >= record.lost_at + s.limits.reap_ms and not owned
