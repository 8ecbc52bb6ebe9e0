"""Pools and DigitalIDs as they are configured and listed, and how even a Pool is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from dhsched.client.models.base import UNSET, LeftOut, Lifetime, Optional, Strict
from dhsched.types import Id, whole

Rebalance = Literal["off", "advise", "act"]

POOLS_MAX = 16  # A DigitalID with more Pools is refused: `place` takes no more.
LABELS_MAX = 32  # Labels of one Pool or live; more are refused.

Label = Annotated[str, whole(r"[A-Za-z0-9._~=-]{1,64}")]
Labels = Annotated[list[Label], msgspec.Meta(max_length=LABELS_MAX)]
Word = Annotated[str, whole(r"[A-Za-z0-9._~-]{0,64}")]
Priority = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
Small = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=100_000)]  # As high as a Worker's capacity may be: no limit at all.


class PoolConfig(msgspec.Struct, frozen=True):
    """A Pool: Workers that serve alike. `priority` 0 is tried first; the other fields say how lives are spread.

    `policy` chooses among the Pool's Workers for lives that try this Pool first, with up to `candidates_max`
    candidates; if they are not given, the replica's own settings apply. Only the policy bottom-tier uses
    `tier_workers_min`, `tier_divisor` and `tau_slots`.

    `rebalance` moves lives (act), or lists those it would move (advise), when the fullest Worker is
    `rebalance_spread_pct` percent of its capacity fuller than the emptiest would be with one more;
    `rebalance_moves_max` at a time.

    `starts_create_max` lives may be starting on one Worker at once, `starts_recover_max` of them, or fewer, when lives
    recover; `cutovers_max` lives of one Worker may be moving away at once. Where starts are quick the Worker's pace
    multiplies all three. A drained live waits `boundary_wait_s` for a boundary. If they are not given, the limits of
    the protocol and the replica's own setting apply.

    `idle_s` and `max_s` are the lifetime of lives that are created without one, and whose DigitalID prefers this Pool.
    """

    gpu_class: Word = ""
    region: Word = ""
    labels: Labels = []
    priority: Priority = 0
    tier_workers_min: Small = 8
    tier_divisor: Small = 8
    tau_slots: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 8
    candidates_max: Annotated[int, msgspec.Meta(ge=1, le=16)] | None = None
    policy: Literal["", "emptiest", "bottom-tier", "exact"] = ""
    rebalance: Rebalance = "advise"
    rebalance_spread_pct: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    rebalance_moves_max: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4
    starts_create_max: Limit | None = None
    starts_recover_max: Limit | None = None
    cutovers_max: Limit | None = None
    boundary_wait_s: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    idle_s: Lifetime | None = None
    max_s: Lifetime | None = None


class PutPool(PoolConfig, frozen=True, forbid_unknown_fields=True):
    """A whole Pool: a field that is left out gets its default."""


class PoolTier(msgspec.Struct, frozen=True):
    """A Pool that may serve a DigitalID; tier 0 is preferred."""

    pool: Id
    tier: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0


class PutPoolTier(PoolTier, frozen=True, forbid_unknown_fields=True):
    """A Pool that may serve a DigitalID; tier 0 is preferred."""


class DigitalIdConfig(msgspec.Struct, frozen=True):
    """A DigitalID: the Pools that can run it, the labels that a Pool must have and a Worker should have."""

    pools: Annotated[Sequence[PoolTier], msgspec.Meta(min_length=1, max_length=POOLS_MAX)]
    required_labels: Labels = []
    preferred_labels: Labels = []


class PutDigitalId(DigitalIdConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole DigitalID: a field that is left out gets its default."""

    pools: Annotated[Sequence[PutPoolTier], msgspec.Meta(min_length=1, max_length=POOLS_MAX)]


class BarredWorkers(msgspec.Struct, frozen=True):
    """Workers that take nothing new: their number, their used slots, and all their slots."""

    workers: int
    load: int
    capacity: int


class NamedPool(msgspec.Struct, frozen=True):
    """A Pool with its name, and what this replica knows of its Workers.

    `load`, `capacity` and `free` count slots of the `placeable` Workers alone, as in the metrics: a slot on a Worker
    that takes nothing new is not free. `barred` counts the others by reason: lost, cordoned, draining, new, gone.
    """

    name: str
    config: PoolConfig
    configured: bool
    workers: int
    placeable: int
    load: int
    capacity: int
    free: int
    barred: dict[str, BarredWorkers]
    cells_left_out: LeftOut | Optional = UNSET


class NamedDigitalId(msgspec.Struct, frozen=True):
    """A DigitalID with its name."""

    name: str
    config: DigitalIdConfig


class PoolList(msgspec.Struct, frozen=True):
    """Every Pool, by name."""

    pools: list[NamedPool]
    cells_left_out: LeftOut | Optional = UNSET


class DigitalIdList(msgspec.Struct, frozen=True):
    """Every DigitalID, by name."""

    digital_ids: list[NamedDigitalId]


class HoldingOut(msgspec.Struct, frozen=True):
    """A placeable Worker: its load once the moves under way are done."""

    worker: str
    load: int
    capacity: int


class AdviceOut(msgspec.Struct, frozen=True):
    """This many lives would go from one Worker to the other."""

    source: str
    target: str
    lives: int


class EvenOut(Strict):
    """Even out the Pool for `seconds` from now on, whatever its setting; 0 ends that."""

    seconds: Annotated[int, msgspec.Meta(ge=0, le=60)] = 15


class RebalanceOut(msgspec.Struct, frozen=True):
    """The moves that would be made now, whatever the mode; only mode `act` makes them, `moves_max` at a time.

    The mode is the Pool's setting, or `act` while somebody has the Pool evened out.
    """

    pool: str
    mode: str
    spread_pct: int
    moves_max: int
    lives: int
    advice: list[AdviceOut]
    workers: list[HoldingOut]
    cells_left_out: LeftOut | Optional = UNSET
