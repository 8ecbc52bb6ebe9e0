"""Metrics whose values are read when `/metrics` is requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Figure = tuple[str, str, Callable[[], float]]
"""Name, help text, and the function that returns the value. A name in `_total` is a counter, any other a gauge."""


class Figures(Collector):
    """A collector of metrics without labels, to be registered; a metric costs nothing until it is read."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self._figures = tuple(figures)

    def collect(self) -> Iterator[Metric]:
        for name, help_text, read in self._figures:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(name, help_text, value=read())
