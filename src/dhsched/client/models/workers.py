"""Workers and their drains."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.client.models.base import UNSET, CellName, LeftOut, Optional, Strict, one_of
from dhsched.types import Id

BOUNDARY_WAIT_MAX_S = 100.0
"""A planned move expires after two minutes, so waiting for a boundary must end before."""


class Blocked(Strict):
    """The Worker's event loop has been blocked for this long, at this place; `tell` requests an event."""

    blocked_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)]
    frame: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    tell: bool = False


class BlockedOut(msgspec.Struct, frozen=True):
    """Whether the message counted as the Worker's beat; for a lost or gone Worker it does not."""

    worker: str
    counted: bool


class DeviceOut(msgspec.Struct, frozen=True):
    """A device of a Worker. `crashes` counts the lives whose runtime has ended by itself on it lately; if there are too
    many, it is `blamed`: sessions get it only while no other device of the Worker is free."""

    name: str
    crashes: int
    blamed: bool


class WorkerHead(msgspec.Struct, frozen=True):
    """The fields that every document about a Worker begins with. `status` is `ready` if it takes new lives, else the
    reason why not. `devices` is empty if the Worker has named none."""

    worker: str
    pool: str
    status: str
    load: int
    capacity: int
    starting: int
    labels: str
    beat: int
    devices: list[DeviceOut]


class WorkerSummary(WorkerHead, frozen=True):
    """A Worker in a list."""

    cell: CellName | Optional = UNSET


class WorkerList(msgspec.Struct, frozen=True):
    """One page by id. `next` is null on the last page."""

    workers: list[WorkerSummary]
    next: str | None
    cells_left_out: LeftOut | Optional = UNSET


class SlotOut(msgspec.Struct, frozen=True):
    """One slot of a Worker. The fields after `state` are of a live whose current generation has the slot: when that was
    committed, its last acked item, and the items that it has not acked."""

    live_id: str
    tenant: str
    number: int
    state: str
    digital_id: str = ""
    committed_at_ms: int = 0
    acked: int = 0
    pending: int = 0
    stalled: bool = False


class TroubleOut(msgspec.Struct, frozen=True):
    """Troubles of one kind that the Worker's name has had within the window: loss, stall or crash. With more than
    `count_max` it is cordoned."""

    kind: str
    count: int
    count_max: int


class WorkerOut(WorkerHead, frozen=True):
    """A Worker and its slots. `boots` counts registrations of its name in the current window of `register_worker`;
    `troubles` are counted over `blame_window_s`. `at_ms` is the store's time. `loop_lag_ms` is how late the Worker's
    event loop was, at worst within a minute: 0 below 50, null if that is not known."""

    name: str
    mode: str
    cutovers: int
    link: str
    slots: list[SlotOut]
    boots: int = 0
    troubles: list[TroubleOut] = []
    blame_window_s: float = 0
    at_ms: int = 0
    loop_lag_ms: int | None = None
    cell: CellName | Optional = UNSET


class WorkerMode(msgspec.Struct, frozen=True):
    """The Worker's mode after the call."""

    worker: str
    mode: str


class DrainWorker(Strict):
    """Options of a drain. An option that is left out keeps its earlier value, or has its default.

    After `deadline_s` every live that is left is cut over at once. After `boundary_wait_s` a live whose target is
    prepared is cut over wherever its input stands. In a deployment of several cells the Worker registers in `to_cell`
    once it is empty.
    """

    deadline_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] | Optional = UNSET
    boundary_wait_s: Annotated[float, msgspec.Meta(ge=0, le=BOUNDARY_WAIT_MAX_S)] | Optional = UNSET
    to_cell: Id | Optional = UNSET


class DrainingLive(msgspec.Struct, frozen=True):
    """One live that is still on the Worker. `code` is stable, `reason` is a sentence."""

    live_id: str
    tenant: str
    epoch: int
    state: Annotated[str, one_of("moving", "waiting", "queued", "blocked")]
    code: str
    reason: str
    target: str


class Drain(msgspec.Struct, frozen=True):
    """The progress of a drain. `lives` counts the lives at its beginning; `moved` includes lives that ended.

    `reasons` counts the lives that are left by their code. `departing` are runtimes that still stop, `vacant` lives
    without a runtime, which recovery places. `done`: nothing is left on the Worker.
    """

    worker: str
    status: str
    mode: str
    asked_at_ms: int
    deadline_in_s: float | None
    boundary_wait_s: float
    lives: int
    moved: int
    left: int
    moving: int
    waiting: int
    queued: int
    blocked: int
    departing: int
    vacant: int
    done: bool
    reasons: dict[str, int]
    details: list[DrainingLive]
    free_elsewhere: int = 0
    """Free slots of other Workers that may take these lives, by the answering replica's view; `left` are needed."""
    to_cell: CellName | Optional = UNSET
    """The cell in which the Worker registers once it is empty."""
