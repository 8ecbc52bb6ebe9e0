"""Counts of durations as plain numbers, which a metric reads at each scrape (`web/figures.py`).

The metrics library's own histograms cost a tenth of an item's CPU time in an Infer-Controller.
"""

from __future__ import annotations

from bisect import bisect_left

SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Durations:
    """How many durations were in each bucket, the last one for those above all edges, and their sum."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BUCKETS) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS_BUCKETS, seconds)] += 1
        self.sum_s += seconds
