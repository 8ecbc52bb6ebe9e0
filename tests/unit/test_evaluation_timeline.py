"""The replay second by second, from when pushes were sent and how long each took."""

from __future__ import annotations

from pathlib import Path

from evaluation.experiment import Row
from evaluation.production import tables
from evaluation.production_timeline import DRAWN, by_second, draw_timeline

TOOK = [*((10 + n / 1_000, float(n)) for n in range(101)), (12.5, 3.0)]


def test_pushes_belong_to_the_second_in_which_they_were_sent() -> None:
    rows = by_second(TOOK, killed_at=[12.0, 12.9], began=10.0)
    assert [(row["second"], row["pushes"], row["hosts_killed"]) for row in rows] == [(0, 101, 0), (2, 1, 2)]
    assert rows[0]["push_p50_ms"] == 50.0 and rows[0]["push_p99_ms"] == 99.0


def test_the_first_run_of_a_case_is_kept_by_second_and_drawn(tmp_path: Path) -> None:
    def run(name: str, p99_ms: float) -> list[Row]:
        second = {"case": name, "second": 0, "pushes": 1, "push_p50_ms": 1.0, "push_p99_ms": p99_ms, "hosts_killed": 1}
        return [{"case": name, "lives": 10, "filled_s": 2.0, "push_p99_ms": p99_ms}, second]

    found = tables({f"{name}_{number}": run(name, 5.0 + number) for name in DRAWN for number in range(3)})
    assert [row["push_p99_ms"] for row in found["production"]] == [6.0] * len(DRAWN), "the median of three"
    assert len(found["production_runs"]) == 3 * len(DRAWN)
    assert [row["push_p99_ms"] for row in found["production_timeline"]] == [5.0] * len(DRAWN)
    assert draw_timeline(found["production_timeline"], tmp_path) == "production_timeline"
    assert (tmp_path / "production_timeline.png").stat().st_size > 0
