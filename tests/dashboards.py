"""`make dashboards`: deploy/grafana/dhsched.json, made from the table of metrics (docs/reference/metrics.md).

A row of the table is a panel for each of its metrics, under its role. Labels that the row names in backticks are those
that the panel tells apart. What an operator looks at first is above them, and written down here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "reference" / "metrics.md"
FILE = ROOT / "deploy" / "grafana" / "dhsched.json"

ROLES = ("all", "dispatch", "infer", "room", "worker")
TITLES = {"all": "Every role", "dispatch": "Dispatch", "infer": "Input", "room": "Rooms", "worker": "Workers"}
LABELS = frozenset(
    {
        "endpoint",
        "status",
        "cause",
        "outcome",
        "reason",
        "phase",
        "kind",
        "how",
        "pool",
        "tenant",
        "state",
        "device",
        "generation",
    }
)
GAUGES = frozenset({"dhsched_view_age_seconds", "dhsched_worker_silent_seconds"})
"""Names that end in _seconds and are no histograms."""
SHARED = ("dhsched_pool_", "dhsched_tenant_pending_bytes", "dhsched_store_memory_share")
"""Figures that every replica reports alike: the largest is the truth, the sum is not."""
RATE = "$__rate_interval"
CLAIMS = f"dhsched_handoff_seconds_bucket{{phase='claim'}}[{RATE}]"
ROW = re.compile(r"^\| (?P<names>`dhsched_.*?) \| (?P<role>[a-z, ]+) \| (?P<meaning>.*) \|$", re.MULTILINE)


class Metric(NamedTuple):
    """A metric, as the table has it."""

    name: str
    role: str
    meaning: str
    labels: tuple[str, ...]

    @property
    def kind(self) -> str:
        if self.name.endswith("_total"):
            return "counter"
        return "histogram" if self.name.endswith("_seconds") and self.name not in GAUGES else "gauge"


class Panel(NamedTuple):
    """A panel: its queries with their legends, and the unit of what they return."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    meaning: str = ""
    kind: str = "timeseries"
    width: int = 8


def over_cells(name: str, by: str) -> str:
    """Return the sum over all cells of a gauge that every replica reports alike."""
    return f"sum by ({by}) (max by ({by}, cell) ({name}))"


FIRST = (
    Panel(
        "Must be 0: two owners, overshoots, drift",
        (("max(dhsched_dual_owners_total) + max(dhsched_overshoots_total) + max(dhsched_drift_total)", ""),),
        meaning="Violations that the replicas have found in the store. Anything else than 0 is a defect.",
        kind="stat",
        width=6,
    ),
    Panel("Free slots", ((over_cells("dhsched_pool_free_slots", "pool"), "{{pool}}"),), kind="stat", width=6),
    Panel(
        "Lives without an owner, P99 of commit to claim",
        ((f"histogram_quantile(0.99, sum by (le) (rate({CLAIMS})))", ""),),
        unit="s",
        kind="stat",
        width=6,
    ),
    Panel(
        "Creates and pushes, P99",
        (
            (f"histogram_quantile(0.99, sum by (le) (rate(dhsched_create_seconds_bucket[{RATE}])))", "create"),
            (f"histogram_quantile(0.99, sum by (le) (rate(dhsched_push_seconds_bucket[{RATE}])))", "push"),
        ),
        unit="s",
        kind="stat",
        width=6,
    ),
    Panel("Waterline", (("max by (pool) (dhsched_pool_waterline)", "{{pool}}"),), unit="percentunit", width=12),
    Panel("Recoveries", ((f"sum(rate(dhsched_places_total{{cause='recover'}}[{RATE}]))", "per second"),), width=12),
)


def metrics() -> list[Metric]:
    """Return every metric of the table, in its order."""
    found = []
    for row in ROW.finditer(TABLE.read_text()):
        role = row["role"].split(",")[0].strip()
        labels = tuple(each for each in re.findall(r"`([a-z]+)`", row["meaning"]) if each in LABELS)
        for name in re.findall(r"`(dhsched_[a-z_]+)`", row["names"]):
            found.append(Metric(name, role, row["meaning"], labels))
    return found


def panel(metric: Metric) -> Panel:
    """Return the panel of one metric: rates of counters, two quantiles of histograms, gauges as they are."""
    name, by = metric.name, ", ".join(metric.labels)
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels)
    title = name.removeprefix("dhsched_").removesuffix("_total").replace("_", " ")
    meaning = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", metric.meaning).replace("**", "")
    if metric.kind == "counter":
        grouped = f"sum by ({by}) " if by else "sum"
        return Panel(f"{title} per second", ((f"{grouped}(rate({name}[{RATE}]))", legend),), meaning=meaning)
    if metric.kind == "histogram":
        rates = f"(rate({name}_bucket[{RATE}]))"
        shown = tuple(
            (f"histogram_quantile({quantile}, sum by ({', '.join(['le', *metric.labels])}) {rates})", text)
            for quantile, text in ((0.5, f"P50 {legend}".strip()), (0.99, f"P99 {legend}".strip()))
        )
        return Panel(title, shown, unit="s", meaning=meaning)
    how = "max" if name.startswith(SHARED) or metric.name in GAUGES else "sum"
    grouped = f"{how} by ({by}) " if by else how
    summed = name.startswith("dhsched_pool_") and not name.endswith("_waterline")
    query = over_cells(name, by) if summed else f"{grouped}({name})"
    unit = "s" if metric.name in GAUGES else "percentunit" if name.endswith(("_share", "_waterline")) else "short"
    return Panel(title, ((query, legend),), unit=unit, meaning=meaning)


def sections() -> Iterator[tuple[str, list[Panel]]]:
    """Return the panels under their headings, what is looked at first at the top."""
    yield "First", [*FIRST]
    known = metrics()
    for role in ROLES:
        yield TITLES[role], [panel(metric) for metric in known if metric.role == role]


def drawn(number: int, made: Panel, x: int, y: int) -> dict[str, Any]:
    """Return a panel as Grafana has it."""
    targets = [
        {"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend or "__auto"}
        for at, (expr, legend) in enumerate(made.queries)
    ]
    return {
        "id": number,
        "type": made.kind,
        "title": made.title,
        "description": made.meaning,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 4 if made.kind == "stat" else 7, "w": made.width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": made.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def panels() -> list[dict[str, Any]]:
    """Return all panels and headings, placed from left to right and from the top down."""
    made: list[dict[str, Any]] = []
    y = 0
    for title, shown in sections():
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        made.append({"id": len(made) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place})
        x, y, high = 0, y + 1, 0
        for each in shown:
            if x + each.width > 24:
                x, y, high = 0, y + high, 0
            made.append(drawn(len(made) + 1, each, x, y))
            x, high = x + each.width, max(high, made[-1]["gridPos"]["h"])
        y += high
    return made


def page() -> str:
    """Return the dashboard as JSON, a panel a line."""
    choice = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    head = {
        "title": "dhsched",
        "uid": "dhsched",
        "tags": ["dhsched"],
        "schemaVersion": 38,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [choice]},
    }
    lines = ",\n".join(json.dumps(each) for each in panels())
    return f'{json.dumps(head)[:-1]}, "panels": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(page())
    print(f"{FILE.relative_to(ROOT)}: {len(panels())} panels")
