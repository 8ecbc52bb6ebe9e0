"""The dashboard of Grafana: it is made from the table of metrics, and every metric of the table is in it."""

from __future__ import annotations

import json

from tests import dashboards


def test_the_dashboard_is_made_from_the_table() -> None:
    assert dashboards.FILE.read_text() == dashboards.page(), "run `make dashboards`"


def test_every_metric_has_a_panel_and_panels_do_not_overlap() -> None:
    shown = json.loads(dashboards.page())["panels"]
    asked = " ".join(target["expr"] for each in shown for target in each.get("targets", ()))
    known = dashboards.metrics()
    assert len(known) > 60 and [each.name for each in known if each.name not in asked] == []
    taken: set[tuple[int, int]] = set()
    for each in shown:
        at = each["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, each["title"]
        taken |= cells
    assert len({each["id"] for each in shown}) == len(shown)


def test_a_counter_is_a_rate_a_histogram_two_quantiles_and_a_gauge_itself() -> None:
    def queries(name: str, *labels: str) -> list[str]:
        return [expr for expr, _ in dashboards.panel(dashboards.Metric(name, "dispatch", "", labels)).queries]

    assert queries("dhsched_x_total", "cause") == ["sum by (cause) (rate(dhsched_x_total[$__rate_interval]))"]
    assert len(queries("dhsched_x_seconds")) == 2
    assert queries("dhsched_view_age_seconds") == ["max(dhsched_view_age_seconds)"]
    free = "sum by (pool) (max by (pool, cell) (dhsched_pool_free_slots))"
    assert queries("dhsched_pool_free_slots", "pool") == [free]
    assert queries("dhsched_pool_waterline", "pool") == ["max by (pool) (dhsched_pool_waterline)"]
    assert queries("dhsched_room_viewers") == ["sum(dhsched_room_viewers)"]
