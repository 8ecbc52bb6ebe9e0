"""Metrics of dispatch, beside those of its HTTP requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dhsched.durations import SECONDS_BUCKETS
from dhsched.web.figures import Figure, Figures, SettlingFigures

if TYPE_CHECKING:
    from dhsched.dispatch.context import DispatchContext


class Places(dict[tuple[str, str], Counter]):
    """The counter of placements by cause and outcome. Each series is kept, because finding it costs more than counting
    in it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._all = Counter(
            "dhsched_places_total",
            "Requested placements, by cause and outcome.",
            ["cause", "outcome"],
            registry=registry,
        )

    def __missing__(self, kind: tuple[str, str]) -> Counter:
        series = self[kind] = self._all.labels(*kind)
        return series


class Metrics:
    """The counters, histograms and gauges of one replica."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.create_seconds = Histogram(
            "dhsched_create_seconds", "Creates, from decoded to placed.", buckets=SECONDS_BUCKETS, registry=registry
        )
        self.passed = Counter(
            "dhsched_passed_total",
            "Requests passed on to Infer-Controllers that have ended, by endpoint and status.",
            ["endpoint", "status"],
            registry=registry,
        )
        self.select_seconds = Histogram(
            "dhsched_select_seconds",
            "Duration of one choice of candidates.",
            buckets=(1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 5e-3, 2.5e-2),
            registry=registry,
        )
        self.places = Places(registry)
        self.looks = Counter(
            "dhsched_looks_total", "Looks at lives that were due, by outcome.", ["outcome"], registry=registry
        )
        self.drift = Counter("dhsched_drift_total", "Workers whose load differed from their slots.", registry=registry)
        self.overshoots = Counter(
            "dhsched_overshoots_total", "Slots found beyond a capacity: must stay 0.", registry=registry
        )
        self.dual_owners = Counter(
            "dhsched_dual_owners_total",
            "Slots found owned by a generation that is not current: must stay 0.",
            registry=registry,
        )
        self.lost = Counter("dhsched_workers_lost_total", "Workers that this replica called lost.", registry=registry)
        self.braked = Gauge(
            "dhsched_workers_braked", "Workers that are silent while the brake is on.", registry=registry
        )
        self.refusals = Counter(
            "dhsched_refusals_total", "Candidates that were passed over.", ["reason"], registry=registry
        )
        self.drain_moves = Counter(
            "dhsched_drain_moves_total",
            "Lives moved off draining Workers: planned, at a boundary, or forced.",
            ["how"],
            registry=registry,
        )
        self.rebalance_moves = Counter(
            "dhsched_rebalance_moves_total", "Lives moved to even out a Pool.", registry=registry
        )
        self.move_seconds = Histogram(
            "dhsched_move_seconds",
            "Planned moves, from the reservation to the commit.",
            ["cause"],
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
            registry=registry,
        )
        self._registry = registry

    def watch(self, context: DispatchContext) -> None:
        """Register the metrics that are read from the context at each scrape."""
        figures: tuple[Figure, ...] = (
            ("dhsched_view_age_seconds", "Age of the fleet view.", lambda: context.fleet.age_s),
            ("dhsched_view_workers", "Workers in the fleet view.", lambda: len(context.fleet.view.workers)),
            ("dhsched_view_weight", "Weight of one own placement.", lambda: context.fleet.view.weight_milli() / 1000),
            ("dhsched_creates_waiting", "Creates that wait for a free slot.", lambda: len(context.create_queue)),
            ("dhsched_store_calls_total", "Calls sent on the store link for steps.", lambda: context.store.link.calls),
            ("dhsched_store_reconnects_total", "Losses of the store link.", lambda: context.store.link.reconnects),
            (
                "dhsched_store_lost_calls_total",
                "Answered calls known to be lost.",
                lambda: context.store.homes.lost_calls,
            ),
            ("dhsched_store_memory_share", "Used share of the store's memory.", lambda: context.fleet.memory_share),
        )
        self._registry.register(Figures(figures))
        self._registry.register(SettlingFigures(context.store.link.settling))
