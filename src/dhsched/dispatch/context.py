"""What every part of a dispatch replica shares: the store, the view, the settings, and what it counts."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dhsched.access.ring import KeyRing
from dhsched.dispatch.recovery.terms import Terms
from dhsched.dispatch.telemetry.events import Events
from dhsched.dispatch.telemetry.handoffs import Handoffs
from dhsched.dispatch.view.create_queue import RoomLine
from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.errors import StoreUnavailable
from dhsched.failpoints import reach
from dhsched.ownership import outcomes as o
from dhsched.placement import Choice, Won
from dhsched.settings import DispatchSettings
from dhsched.store.records import Records
from dhsched.store.steps.redis import RedisStore
from dhsched.types import live_key
from dhsched.web import Asked, Service
from dhsched.web.server import SECONDS_BUCKETS

REMEMBERED_MAX = 4_096  # Choices kept for `why`.
RETRY_S = 0.1  # Between two tries of a store call whose outcome is unknown.
T = TypeVar("T")


class Metrics:
    """What dispatch counts beside its requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.create_seconds = Histogram(
            "dhsched_create_seconds", "Creates, from decoded to placed.", buckets=SECONDS_BUCKETS, registry=registry
        )
        self.select_seconds = Histogram(
            "dhsched_select_seconds",
            "One decision of placement.",
            buckets=(1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 5e-3, 2.5e-2),
            registry=registry,
        )
        self.places = Counter(
            "dhsched_places", "Placements asked for, by cause and outcome.", ["because", "outcome"], registry=registry
        )
        self.looks = Counter(
            "dhsched_looks", "Looks at lives that were due, by outcome.", ["outcome"], registry=registry
        )
        self.drift = Counter("dhsched_drift", "Workers whose load was not what their slots say.", registry=registry)
        self.overshoots = Counter(
            "dhsched_overshoots", "Slots found beyond a capacity: must stay 0.", registry=registry
        )
        self.dual_owners = Counter(
            "dhsched_dual_owners",
            "Slots found owned by a generation that is not current: must stay 0.",
            registry=registry,
        )
        self.lost = Counter("dhsched_workers_lost", "Workers that this replica called lost.", registry=registry)
        self.braked = Gauge(
            "dhsched_workers_braked", "Workers that are silent while the brake is on.", registry=registry
        )
        self.refusals = Counter("dhsched_refusals", "Candidates that were passed over.", ["why"], registry=registry)
        self.drain_moves = Counter(
            "dhsched_drain_moves",
            "Lives moved off draining Workers: planned, at a boundary, or forced.",
            ["how"],
            registry=registry,
        )
        self.rebalance_moves = Counter("dhsched_rebalance_moves", "Lives moved to even out a Pool.", registry=registry)
        self.move_seconds = Histogram(
            "dhsched_move_seconds",
            "Planned moves, from the reservation to the commit.",
            ["because"],
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
            registry=registry,
        )
        self._registry = registry
        self._places: dict[tuple[str, str], Counter] = {}

    def count_place(self, because: str, outcome: str) -> None:
        """One more of these. Finding a series costs more than counting in it, and every create counts."""
        series = self._places.get((because, outcome))
        if series is None:
            series = self._places[because, outcome] = self.places.labels(because, outcome)
        series.inc()

    def watch(self, context: DispatchContext) -> None:
        """Figures that are read when they are asked for."""
        for name, help_text, read in (
            ("dhsched_view_age_seconds", "Age of the fleet view.", lambda: context.fleet.age_s),
            ("dhsched_view_workers", "Workers in the fleet view.", lambda: len(context.fleet.view.workers)),
            ("dhsched_view_weight", "What one own placement counts for.", lambda: context.weight()),
            ("dhsched_creates_waiting", "Creates that wait for room.", lambda: len(context.line)),
            ("dhsched_store_calls", "Calls sent on the link for steps.", lambda: context.store.link.calls),
            ("dhsched_store_reconnects", "Times that link was lost.", lambda: context.store.link.reconnects),
            ("dhsched_store_memory_share", "Used share of the store's memory.", lambda: context.fleet.memory_share),
        ):
            Gauge(name, help_text, registry=self._registry).set_function(read)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The last choice this replica made for a live, and what became of it."""

    choice: Choice
    outcome: str
    epoch: int
    refusals: tuple[o.Refusal, ...]
    won: Won | None = None


@dataclass(slots=True, kw_only=True)
class DispatchContext:
    """One replica. Everything in it but the store is a cache: it may be killed at any instruction."""

    store: RedisStore
    records: Records
    ring: KeyRing
    fleet: Fleet
    settings: DispatchSettings
    service: Service
    metrics: Metrics
    line: RoomLine
    handoffs: Handoffs
    events: Events
    terms: Terms
    rng: Random = field(default_factory=Random)
    _remembered: OrderedDict[str, Remembered] = field(default_factory=OrderedDict)
    _operations: count[int] = field(default_factory=lambda: count(1))
    _boot: str = field(default_factory=lambda: secrets.token_hex(6))

    @property
    def replica(self) -> str:
        """This replica's id: it is part of the ids of its operations and of its channel in the store."""
        return self.service.instance

    def operation(self, kind: str = "op") -> str:
        """An operation id that was never used. The boot is in it, because a replica may come back under its name.

        A live's history shows it: a cutover that could not wait for its boundary is of the kind `forced`.
        """
        return f"{kind}-{self._boot}-{next(self._operations)}"

    def weight(self) -> float:
        return self.fleet.view.weight_milli() / 1000

    def tenant(self, asked: Asked) -> str:
        """Whose lives a request is about."""
        return asked.caller.tenant

    def live(self, asked: Asked, live_id: str) -> str:
        return live_key(self.tenant(asked), live_id)

    def loop_time(self) -> float:
        """This process's own monotonic clock."""
        return asyncio.get_running_loop().time()

    def until(self) -> float:
        """When a request that begins now must be done with the store."""
        return asyncio.get_running_loop().time() + self.settings.deadline_s

    def remember(self, live: str, remembered: Remembered) -> None:
        self._remembered[live] = remembered
        self._remembered.move_to_end(live)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def remembered(self, live: str) -> Remembered | None:
        return self._remembered.get(live)


async def settle(point: str, call: Callable[[], Awaitable[T]], *, until: float) -> T:
    """One call that changes something, to its end: while its outcome is unknown, it is repeated as it was.

    Each such call is safe to repeat: by its operation id, by its request id, or because twice is the same as once.
    """
    loop = asyncio.get_running_loop()
    while True:
        reach(f"{point}.before")
        try:
            answer = await call()
        except StoreUnavailable:
            if loop.time() + RETRY_S >= until:
                raise
            await asyncio.sleep(RETRY_S)
            continue
        reach(f"{point}.after")
        return answer
