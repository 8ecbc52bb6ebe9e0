"""The fleet in figures, as this replica sees it: free slots and waterline per Pool are what to scale a Pool by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.placement.index import PoolView

STATUSES = ("ready", "new", "cordoned", "draining", "lost", "gone")


class FleetMetrics(Collector):
    """Made when they are asked for, from the view. Every replica says the same, up to the age of its view."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        pools = self._fleet.view.pools
        figures: tuple[tuple[str, str, Callable[[PoolView], float]], ...] = (
            ("dhsched_pool_capacity_slots", "Slots of the placeable Workers.", lambda pool: pool.capacity),
            ("dhsched_pool_load_slots", "Slots that are taken on them.", lambda pool: pool.load),
            ("dhsched_pool_free_slots", "Slots that are free on them.", lambda pool: pool.capacity - pool.load),
            (
                "dhsched_pool_waterline",
                "Taken share of them, own placements included; 1 in a Pool without Workers.",
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
        family = GaugeMetricFamily("dhsched_pool_workers", "Workers by what they are.", labels=["pool", "status"])
        for pool in self._fleet.view.pools:
            for status in STATUSES:
                family.add_metric([pool, status], counted[pool, status])
        return family
