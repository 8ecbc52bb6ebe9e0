"""The whole deployment in one document, its replicas, and the feed of changes."""

from __future__ import annotations

import msgspec

from dhsched.client.models.base import UNSET, LeftOut, Optional
from dhsched.client.models.pools import AdviceOut, BarredWorkers


class LiveCounts(msgspec.Struct, frozen=True):
    """Lives of every tenant. `open` have not ended. `waiting` are in a queue for a free slot. `recovering` are on lost
    Workers: they are placed anew, or wait. `creates_waiting` are requests that wait for a slot, at all replicas."""

    open: int
    waiting: int
    recovering: int
    creates_waiting: int


class SlotCounts(msgspec.Struct, frozen=True):
    """Slots of the Workers that take new lives."""

    load: int
    capacity: int
    free: int


class Brake(msgspec.Struct, frozen=True):
    """The brake of the liveness check. `by` is the replica that applied it first, `silent` counts silent Workers."""

    on: bool
    by: str
    silent: int


class StoreSummary(msgspec.Struct, frozen=True):
    """The store. `answered_ms` is how long it took to answer, `behind_bytes` what the slowest of its replicas lacks;
    `lost_calls` counts answered calls that the replica which answers knows to be lost."""

    home: str
    term: int
    answered_ms: float
    replicas: int
    behind_bytes: int
    lost_calls: int
    memory_share: float
    unsettled: str = ""


class Safety(msgspec.Struct, frozen=True):
    """What must stay 0, added up over the Dispatch replicas that run now, each since its start.

    `checked_ms_ago` is the age of the latest check of any replica, null before the first. `workers` counts checks of
    single Workers.
    """

    dual_owners: int
    overshoots: int
    drift: int
    workers: int
    replicas: int
    checked_ms_ago: int | None


class PoolSummary(msgspec.Struct, frozen=True):
    """A Pool: its slots that can be placed, and apart from them what takes nothing new, by reason (`barred`).

    `waterline` is the taken share of the slots that can be placed, 1 without any. `spread_pct` is the difference of the
    fullest and the emptiest placeable Worker, in percent of their capacity. `advice` are the moves that would make the
    Pool even, as of the answering replica's last round; 20 at most, `advised_lives` counts the lives of all.
    """

    name: str
    workers: int
    placeable: int
    load: int
    capacity: int
    free: int
    waterline: float
    barred: dict[str, BarredWorkers]
    waiting: int
    spread_pct: int
    rebalance: str
    advised_lives: int
    advice: list[AdviceOut]


class CellOut(msgspec.Struct, frozen=True):
    """One of several cells, as the replica sees it. `trouble` says why requests for its lives fail now; empty if they
    need not. Its figures are 0 while it cannot be asked."""

    name: str
    ready: bool
    trouble: str
    workers: int = 0
    lives: int = 0
    free: int = 0
    capacity: int = 0
    home: str = ""


class CellList(msgspec.Struct, frozen=True):
    """The cells of the deployment, in their order; one in most. The configuration is written in the first."""

    cells: list[CellOut]


class Summary(msgspec.Struct, frozen=True):
    """The deployment as one replica (`by`) sees it, at the store's time `at_ms`. `pools` are by name, 256 at most;
    `pools_left_out` counts the others."""

    by: str
    cell: str
    at_ms: int
    view_age_s: float
    workers: int
    workers_by_status: dict[str, int]
    lives: LiveCounts
    slots: SlotCounts
    brake: Brake
    store: StoreSummary
    safety: Safety
    pools: list[PoolSummary]
    pools_left_out: int = 0
    cells: list[CellOut] | Optional = UNSET
    """The cells, where the deployment has several; `store` then has the worst figure of all, and the first's home."""


class SafetyOut(msgspec.Struct, frozen=True):
    """What one replica has found since its start that must never be."""

    dual_owners: int
    overshoots: int
    drift: int
    workers: int
    checked_ms_ago: int | None


class ReplicaOut(msgspec.Struct, frozen=True):
    """A Dispatch replica or an Infer-Controller, as it told of itself `told_ms_ago`. `missing` says why it is not
    ready; `safety` is null for a role that checks nothing."""

    role: str
    name: str
    version: str
    url: str
    ready: bool
    missing: list[str]
    up_s: int
    told_ms_ago: int
    creates_waiting: int = 0
    safety: SafetyOut | None = None


class ReplicaList(msgspec.Struct, frozen=True):
    """Replicas that told of themselves within 15 seconds, by role and name; 256 at most."""

    replicas: list[ReplicaOut]
    cells_left_out: LeftOut | Optional = UNSET


class WorkerNow(msgspec.Struct, frozen=True, gc=False):
    """A Worker in the feed of changes. `slots` counts its slots by state: reserved, starting, running, vacant,
    departing."""

    worker: str
    pool: str
    status: str
    load: int
    capacity: int
    starting: int
    slots: dict[str, int]


class LiveNow(msgspec.Struct, frozen=True, gc=False):
    """A slot of a live that changed. `state` is empty if the live has left the slot."""

    tenant: str
    live_id: str
    worker: str
    epoch: int
    state: str


class AllWorkers(msgspec.Struct, frozen=True):
    """Event `all`: a page of all Workers. `first` says to forget what was known before; `last` ends the pages."""

    workers: list[WorkerNow]
    first: bool
    last: bool


class Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Event `changes`: Workers as they are now, Workers that are gone, and slots of lives that changed."""

    workers: list[WorkerNow] = []
    gone: list[str] = []
    lives: list[LiveNow] = []


class Overview(msgspec.Struct, frozen=True):
    """Event `summary`: the deployment, and who serves it."""

    summary: Summary
    replicas: list[ReplicaOut]


class ChangeCursor(msgspec.Struct, frozen=True):
    """The cursor of this moment: a stream that begins after it misses nothing that happens from now on."""

    cursor: str
    workers: int
