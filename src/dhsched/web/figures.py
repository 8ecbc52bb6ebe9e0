"""Metrics whose values are read when `/metrics` is requested."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dhsched.access.tenants import EVERY_OTHER
from dhsched.durations import SECONDS_BUCKETS, Durations
from dhsched.pauses import Pauses
from dhsched.store.link.settling import Settling

TENANTS_MAX = 100  # Tenants with a time series of their own; further ones share one.
EDGES = [*(f"{edge:g}" for edge in SECONDS_BUCKETS), "+Inf"]
Figure = tuple[str, str, Callable[[], float]]
"""Name, help text, and the function that returns the value. A name in `_total` is a counter, any other a gauge."""


RENDER_SHARE = 0.02
"""Share of the time in which the page is rendered, however often it is requested. A replica's page has a thousand lines
and takes 10 ms, so it is rendered twice a second at most."""
PAGE_KEPT_MAX_S = 2.0  # A page is not older than this, however slow the machine is.


class MetricsPage:
    """The page of `/metrics`. A rendered page is returned again until RENDER_SHARE allows the next rendering."""

    def __init__(self, registry: CollectorRegistry, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._monotonic = monotonic
        self._text = b""
        self._until = float("-inf")

    def text(self) -> bytes:
        began = self._monotonic()
        if began >= self._until:
            self._text = generate_latest(self._registry)
            ended = self._monotonic()
            self._until = ended + min((ended - began) / RENDER_SHARE, PAGE_KEPT_MAX_S)
        return self._text


class Figures(Collector):
    """A collector of metrics without labels, to be registered; a metric costs nothing until it is read."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self._figures = tuple(figures)

    def collect(self) -> Iterator[Metric]:
        for name, help_text, read in self._figures:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(name, help_text, value=read())


def histogram(name: str, help_text: str, durations: Durations) -> Metric:
    """Return a metric of durations that were counted in plain numbers."""
    return HistogramMetricFamily(name, help_text, buckets=buckets(durations), sum_value=durations.sum_s)


def buckets(durations: Durations) -> list[tuple[str, float]]:
    return [*zip(EDGES, accumulate(durations.counts), strict=True)]


class PauseFigures(Collector):
    """The metrics of the pauses of this process, to be registered."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses

    def collect(self) -> Iterator[Metric]:
        late = "Time that a request would have waited for the event loop, measured four times a second."
        yield histogram("dhsched_loop_lag_seconds", late, self._pauses.lag)
        collections = HistogramMetricFamily(
            "dhsched_gc_pause_seconds", "Garbage collections, by generation.", labels=["generation"]
        )
        for generation, seconds in enumerate(self._pauses.collections):
            collections.add_metric([str(generation)], buckets(seconds), seconds.sum_s)
        yield collections


class TenantTotals(Collector):
    """A counter per tenant, to be registered. Past TENANTS_MAX tenants the further ones are counted together, as `*`:
    every label is a time series for ever."""

    def __init__(self, name: str, help_text: str) -> None:
        self._name = name
        self._help_text = help_text
        self.totals: dict[str, float] = {}

    def add(self, tenant: str, amount: float) -> None:
        if tenant not in self.totals and len(self.totals) >= TENANTS_MAX:
            tenant = EVERY_OTHER
        self.totals[tenant] = self.totals.get(tenant, 0) + amount

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._help_text, labels=["tenant"])
        for tenant, total in self.totals.items():
            family.add_metric([tenant], total)
        yield family


class TenantGauges(Collector):
    """A gauge per tenant, to be registered; `read` returns the values by tenant. Past TENANTS_MAX tenants the values of
    the further ones are added up, as `*`."""

    def __init__(self, name: str, help_text: str, read: Callable[[], Mapping[str, float]]) -> None:
        self._name = name
        self._help_text = help_text
        self._read = read
        self._known: dict[str, None] = {}

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, self._help_text, labels=["tenant"])
        values = dict.fromkeys(self._known, 0.0)
        for tenant, value in self._read().items():
            if tenant not in self._known and len(self._known) >= TENANTS_MAX:
                tenant = EVERY_OTHER
            self._known[tenant] = None
            values[tenant] = values.get(tenant, 0.0) + value
        for tenant, value in values.items():
            family.add_metric([tenant], value)
        yield family


class SettlingFigures(Collector):
    """The metrics of settled replies; none where the store's URL asks for no replicas."""

    def __init__(self, settling: Settling | None) -> None:
        self._settling = settling

    def collect(self) -> Iterator[Metric]:
        if self._settling is None:
            return
        seconds, unsettled = self._settling.seconds, self._settling.unsettled_calls
        yield histogram("dhsched_store_settle_seconds", "Batches of calls, from sent to settled.", seconds)
        yield CounterMetricFamily(
            "dhsched_store_unsettled_calls_total", "Calls that ran and were not settled in time.", value=unsettled
        )


class CellFigures(Collector):
    """Which of several cells are ready; `troubles` returns each cell and why it is not."""

    def __init__(self, troubles: Callable[[], Mapping[str, str]]) -> None:
        self._troubles = troubles

    def collect(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily(
            "dhsched_cell_ready", "1 if the cell is ready at this replica, else 0.", labels=["cell"]
        )
        for cell, trouble in self._troubles().items():
            ready.add_metric([cell], not trouble)
        yield ready


class InCells(Collector):
    """The metrics of several cells on one page, each series with the label `cell`."""

    def __init__(self, registries: Callable[[], Mapping[str, CollectorRegistry]]) -> None:
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for cell, registry in self._registries().items():
            for found in registry.collect():
                family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                family.samples += [each._replace(labels={**each.labels, "cell": cell}) for each in found.samples]
        yield from families.values()
