"""The product's steps with single guards taken out: what each of them is worth.

Nothing is copied. A step runs on a record that shows the asker what it wants to see in the fields that a weaker guard
does not look at; then these fields are put back. With nothing hidden it is the product's step itself, so breaking the
product breaks this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import EMPTY, State
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from dhsched.types import Cause

LIVE = "default/live"
LIMITS = Limits(starts_create_max=10_000, starts_recover_max=10_000, claim_wait_ms=10**9, ack_wait_ms=10**9)
"""Starts are not what is measured here, nor do stalls take part."""
OWNERSHIP = ("selected", "epoch", "active", "pull_no")
ROOMY = 1_000_000


@dataclass(frozen=True, slots=True)
class Guards:
    """What a protocol checks. `unchecked` are the fields that its release does not look at."""

    name: str
    commit: bool  # A new generation is committed only from the epoch that its maker saw.
    claim: bool  # Only the selected Worker's runtime is let in.
    unchecked: tuple[str, ...]
    lease: bool = False  # A change waits until the source's lease is given back or over.


PROTOCOLS = (
    Guards("assignment-only", commit=False, claim=False, unchecked=OWNERSHIP),
    Guards("epoch-at-commit", commit=True, claim=False, unchecked=OWNERSHIP),
    Guards("claim-only", commit=True, claim=True, unchecked=OWNERSHIP),
    Guards("worker-id-only", commit=True, claim=True, unchecked=("epoch", "pull_no")),
    Guards("guard-lease", commit=True, claim=True, unchecked=OWNERSHIP, lease=True),
    Guards("dhsched", commit=True, claim=True, unchecked=()),
)


def fleet(names: Sequence[str], *, capacity: int = ROOMY) -> tuple[State, list[str]]:
    """A cell with these Workers, all placeable; their ids."""
    state, ids = EMPTY, []
    for name in names:
        state, made = STEPS["register_worker"](state, 0, LIMITS, name=name, boot=name, pool="gpu", capacity=capacity)
        state, _ = STEPS["report"](state, 0, LIMITS, worker=made.worker, boot=name)
        ids.append(made.worker)
    return state, ids


def create(state: State, worker: str, live: str = LIVE) -> tuple[State, Any]:
    return STEPS["place"](
        state,
        0,
        LIMITS,
        live=live,
        operation=f"create-{live.partition('/')[2]}",
        cause="create",
        create=Create(digital_id="anna", fingerprint="f"),
        candidates=[worker],
    )


def place(
    state: State, now: int, target: str, *, expected: int, operation: str, cause: Cause, checked: bool
) -> tuple[State, Any]:
    """Commit a generation on `target`. Unchecked, whatever epoch is current counts as the one that was seen."""
    seen = expected if checked else state.lives[LIVE].epoch
    return STEPS["place"](
        state, now, LIMITS, live=LIVE, operation=operation, cause=cause, expected=seen, candidates=[target]
    )


def pull(state: State, now: int, worker: str, epoch: int) -> tuple[State, Any]:
    return STEPS["pull"](state, now, LIMITS, live=LIVE, worker=worker, epoch=epoch, after=0, controller="infer")


def release(
    state: State, now: int, asker: dict[str, Any], after: int, unchecked: tuple[str, ...]
) -> tuple[State, o.ReleaseOutcome]:
    """One item for `asker`, which says (selected, epoch, active, pull_no) of itself."""
    record = state.lives[LIVE]
    shown = replace(record, **{field: asker[field] for field in unchecked}) if unchecked else record
    before = replace(state, lives={**state.lives, LIVE: shown}) if unchecked else state
    made, outcome = STEPS["release_input"](
        before,
        now,
        LIMITS,
        live=LIVE,
        worker=asker["selected"],
        epoch=asker["epoch"],
        pull_no=asker["pull_no"],
        after=after,
        credit=after + 1,
    )
    if unchecked:
        back = replace(made.lives[LIVE], **{field: getattr(record, field) for field in unchecked})
        made = replace(made, lives={**made.lives, LIVE: back})
    return made, outcome


def admit(state: State, now: int, live: str, worker: str, *, checked: bool) -> tuple[State, Any]:
    """Create a live on one Worker. Unchecked, the Worker shows more free slots than it has."""
    if checked:
        return create(state, worker, live)
    record = state.workers[worker]
    shown = replace(state, workers={**state.workers, worker: replace(record, capacity=ROOMY)})
    made, outcome = create(shown, worker, live)
    back = replace(made.workers[worker], capacity=record.capacity)
    return replace(made, workers={**made.workers, worker: back}), outcome
