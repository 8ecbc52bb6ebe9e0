"""Metrics that are read at each scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from dhsched.client.metrics import total
from dhsched.durations import Durations
from dhsched.web.figures import RENDER_SHARE, Figures, MetricsPage, SettlingFigures, histogram


def test_durations_are_a_histogram() -> None:
    durations = Durations()
    for seconds in (0.0004, 0.001, 0.03, 60.0):
        durations.add(seconds)
    samples = {(each.name, each.labels.get("le")): each.value for each in histogram("d", "help", durations).samples}
    edges = ("0.0005", "0.001", "0.025", "0.05", "10.0", "+Inf")
    found = [samples.get(("d_bucket", edge), samples.get(("d_bucket", edge.removesuffix(".0")))) for edge in edges]
    assert found == [1, 2, 2, 3, 3, 4]
    assert samples["d_count", None] == 4 and samples["d_sum", None] == 60.0314


def test_a_store_without_replicas_has_no_metrics_of_settling() -> None:
    registry = CollectorRegistry()
    registry.register(SettlingFigures(None))
    page = generate_latest(registry).decode()
    assert total(page, "dhsched_store_settle_seconds_count") == 0 and "settle" not in page


def test_a_page_is_rendered_for_a_small_share_of_the_time() -> None:
    """Each reading of the metric takes a hundredth of a second, and so each rendering does."""
    now_s, readings = 100.0, 0

    def read() -> float:
        nonlocal now_s, readings
        now_s, readings = now_s + 0.01, readings + 1
        return readings

    registry = CollectorRegistry()
    registry.register(Figures([("x", "help", read)]))
    readings = 0  # The registration reads, too.
    page = MetricsPage(registry, lambda: now_s)
    first = page.text()
    kept_s = 0.01 / RENDER_SHARE
    now_s += kept_s - 0.001
    assert page.text() == first and readings == 1
    now_s += 0.002
    assert total(page.text().decode(), "x") == 2
