"""The benchmark of several cells runs, prints the keys that are asked for, and its walk lists every live once; its
figures are for a quiet machine."""

from __future__ import annotations

import pytest

from dhsched.bench.cells import LIVES_PER_WORKER, WHAT, Round, Size, bench_cells, figures
from dhsched.bench.cells_fleet import ROLES, Used
from dhsched.errors import BadValue


@pytest.mark.release
@pytest.mark.parametrize("mixed", [False, True])
async def test_every_number_of_cells_has_its_figures(mixed: bool) -> None:
    said: list[str] = []
    size = Size(
        cells=(1, 2),
        rounds=1,
        rest_s=0.0,
        idle_s=0.5,
        creates=40,
        creates_per_s=200,
        items=200,
        pushes_per_s=1_000,
        mixed=mixed,
        workers=3,
    )
    result = await bench_cells(size, said.append)
    assert result["server"].split()[0] in ("valkey", "redis")
    assert (result["cells"], result["workers"], result["lives"]) == ([1, 2], 4, 4 * LIVES_PER_WORKER)
    assert result["mixed"] is mixed
    names = [name for name, _, _ in WHAT]
    expected = {f"{name}_{cells}" for name in names for cells in (1, 2)}
    expected |= {f"{name}_spread_{cells}" for name in names for cells in (1, 2)}
    expected |= {f"ratio_{name}_2" for name in names}
    expected |= {f"idle_{part}_us_per_s_{cells}" for part in ("store", "service") for cells in (1, 2)}
    assert expected <= result.keys()
    assert all(isinstance(result[f"{name}_{cells}"], float) for name in names for cells in (1, 2))
    assert sum(line.startswith("round 1") for line in said) == 2


@pytest.mark.release
async def test_a_walk_lists_every_live_that_stays_exactly_once() -> None:
    size = Size(
        cells=(1, 3), lives=90, creates=20, creates_per_s=200, pushes_per_s=300, seconds=1.0, settle_s=0.0, page=7
    )
    result = await bench_cells(size, lambda _line: None)
    assert (result["cells"], result["workers"], result["lives"]) == (3, 3, 90)
    assert (result["listed_once"], result["listed_twice"], result["missed"]) == (90, 0, 0)
    assert result["pages"] >= 90 / 7 and result["came"] > result["went"] > 0
    assert {f"{what}_{role}" for what in ("memory_mb", "idle_cores", "push_cores") for role in ROLES} <= result.keys()
    assert all(result[f"memory_mb_{role}"] > 1 for role in ROLES)
    assert 0 < result["create_p50_ms"] <= result["create_p99_ms"]
    assert 0 < result["push_p50_ms"] <= result["push_p99_ms"]


async def test_sizes_that_cannot_be_measured_are_refused() -> None:
    for size, said in (
        (Size(cells=()), "no number of cells"),
        (Size(cells=(13, 16)), "no common multiple"),
        (Size(cells=(4,), lives=1_000_000, workers=4), "slots each"),
    ):
        with pytest.raises(BadValue, match=said):
            await bench_cells(size, lambda _line: None)


def used(wall_s: float, store: float, dispatch: float, infer: float) -> Used:
    return Used(wall_s, {"store": store, "dispatch": dispatch, "infer": infer, "workers": 1.0})


def test_what_a_cell_costs_by_itself_is_taken_off() -> None:
    """One cell: 0.01 cores idle of the store, 0.1 of Dispatch. Two: twice as much idle, and the same per operation."""
    size = Size(creates=1_000, items=10_000)
    rounds = {
        cells: [
            Round(
                used(2.0, 0.02 * cells, 0.2 * cells, 0.04 * cells),
                creates=used(4.0, 0.04 * cells + 0.2 * busy, 0.4 * cells + 1.0 * busy, 0.08 * cells),
                items=used(5.0, 0.05 * cells + 0.4 * busy, 0.5 * cells, 0.1 * cells + 0.6 * busy),
            )
            for busy in (1.0, 1.1, 0.9)
        ]
        for cells in (1, 2)
    }
    found = figures(rounds, size)
    for cells in (1, 2):
        assert found[f"idle_store_us_per_s_{cells}"] == 10_000 * cells
        assert found[f"idle_service_us_per_s_{cells}"] == 120_000 * cells
        assert found[f"store_us_per_create_{cells}"] == pytest.approx(200.0)
        assert found[f"store_us_per_item_{cells}"] == pytest.approx(40.0)
        assert found[f"service_us_per_create_{cells}"] == pytest.approx(1_000.0)
        assert found[f"service_us_per_item_{cells}"] == pytest.approx(60.0)
        assert found[f"store_us_per_create_spread_{cells}"] == pytest.approx(0.2)
    assert found["ratio_store_us_per_create_2"] == found["ratio_service_us_per_item_2"] == pytest.approx(1.0)


def test_a_run_that_is_too_short_to_measure_has_no_ratio() -> None:
    nothing = used(1.0, 0.0, 0.0, 0.0)
    found = figures({cells: [Round(nothing, nothing, nothing)] for cells in (1, 4)}, Size(cells=(1, 4)))
    assert found["store_us_per_item_4"] == 0.0
    assert found["ratio_store_us_per_item_4"] is found["store_us_per_item_spread_4"] is None
