"""Metrics of the fleet, from this replica's view. Scale a Pool by its free slots or its waterline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.placement.index import PoolView

STATUSES = ("ready", "new", "cordoned", "draining", "lost", "gone")


class FleetMetrics(Collector):
    """A collector that makes the metrics from the view at each scrape. All replicas show the same, up to the age of
    their views."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        pools = self._fleet.view.pools
        figures: tuple[tuple[str, str, Callable[[PoolView], float]], ...] = (
            ("dhsched_pool_capacity_slots", "Slots of the placeable Workers.", lambda pool: pool.capacity),
            ("dhsched_pool_load_slots", "Taken slots of the placeable Workers.", lambda pool: pool.load),
            ("dhsched_pool_free_slots", "Free slots of the placeable Workers.", lambda pool: pool.capacity - pool.load),
            (
                "dhsched_pool_waterline",
                "Taken share of these slots, own placements included; 1 in a Pool without Workers.",
                lambda pool: pool.waterline(),
            ),
        )
        for name, help_text, value in figures:
            family = GaugeMetricFamily(name, help_text, labels=["pool"])
            for pool, view in pools.items():
                family.add_metric([pool], value(view))
            yield family
        yield self._workers()

    def _workers(self) -> Metric:
        counted = Counter((each.pool, each.barred or "ready") for each in self._fleet.view.workers.values())
        family = GaugeMetricFamily("dhsched_pool_workers", "Workers by status.", labels=["pool", "status"])
        for pool in self._fleet.view.pools:
            for status in STATUSES:
                family.add_metric([pool, status], counted[pool, status])
        return family
