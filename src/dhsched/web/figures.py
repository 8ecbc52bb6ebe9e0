"""Figures that are read when `/metrics` is requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Figure = tuple[str, str, Callable[[], float]]
"""Name, help text, and what reads the value. A name that ends in `_total` is a counter, any other a gauge."""


class Figures(Collector):
    """Register with a registry. A figure without labels costs nothing until somebody reads it."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self._figures = tuple(figures)

    def collect(self) -> Iterator[Metric]:
        for name, help_text, read in self._figures:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(name, help_text, value=read())
