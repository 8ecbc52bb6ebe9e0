"""Reads a role's metrics page."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(page: str) -> Iterator[Sample]:
    """Yield every series of a metrics page: its name, labels and value."""
    for family in text_string_to_metric_families(page):
        yield from family.samples


def total(page: str, series: str, **labels: str) -> float:
    """Return the sum of all series of this name that have these labels; 0 if the page has none."""
    return sum(each.value for each in samples(page) if each.name == series and labels.items() <= each.labels.items())
