"""register_worker: a machine's new boot becomes a Worker. A boot that it replaces is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dhsched.ownership.admission import raise_base
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Registered, RegisterOutcome
from dhsched.ownership.presence import make_gone
from dhsched.ownership.state import State, Worker


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
    """Give a boot its WorkerID. The boot that it replaces on its device is gone in the same step."""
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
    raise_base(s, issued)
    worker = f"{name}#{issued}"
    s.workers[worker] = Worker(name=name, boot=boot, pool=pool, capacity=capacity, labels=labels, mode=mode)
    s.boots[boot] = worker
    s.set_worker(worker, slots_rev=s.touch(worker))
    return s.done(), Registered(worker, mode, again=False)
