"""The simulation of several cells: in which cell a live is created, and how often a full cell refuses one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from dhsched.cells.tries import OTHERS_MAX, cells_to_try
from dhsched.cli import app
from dhsched.errors import BadValue
from dhsched.placement import DEFAULT_POLICY, POLICIES, DigitalID, Pool, PoolEntry
from dhsched.simulate import CellsResult, Ids, SimulatedWorker, Workload, cell_counts, plan_of, simulate, simulate_cells
from dhsched.simulate.cells import dealt
from dhsched.simulate.fleet import Cell

PLAN = """
pools:
  - {name: big}
  - {name: small, priority: 1}
workers:
  - {pool: big, count: 8, capacity: 20, load: [0, 8]}
  - {pool: small, count: 16, capacity: 10}
digital_ids:
  - {name: anna, pools: [{pool: big}, {pool: small, tier: 1}], weight: 3}
  - {name: ben, pools: [{pool: small}]}
creates: 200
placements_per_snapshot: [10]
"""


def fleet(
    capacities: list[int], *, creates: int, replicas: int = 1, pools: str = "gpu", wants: str = "gpu"
) -> Workload:
    """Workers of these capacities, dealt to the Pools in turn, and creates that want one Pool."""
    names = pools.split()
    workers = tuple(
        SimulatedWorker(f"w{n:03d}", names[n % len(names)], capacity, 0) for n, capacity in enumerate(capacities)
    )
    rng = Random(1)
    arrivals = tuple((rng.randrange(replicas), 0) for _ in range(creates))
    digital_id = DigitalID("anna", (PoolEntry(wants),))
    return Workload("test", tuple(Pool(name) for name in names), workers, (digital_id,), replicas, arrivals)


def run(workload: Workload, cells: int, ids: Ids = Ids.FIXED, **more: Any) -> CellsResult:
    given = {"placements_per_snapshot": 1, "redraws": 3, "seed": 1, **more}
    return simulate_cells(workload, DEFAULT_POLICY, cells=cells, ids=ids, **given)


# -- one cell


@pytest.mark.parametrize("ids", list(Ids))
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_one_cell_is_a_fleet_without_cells_byte_for_byte(policy: str, ids: Ids) -> None:
    workload = fleet([7, 5, 9, 4] * 4, creates=90, replicas=3)
    for every in (1, 20):
        plain = simulate(workload, POLICIES[policy], placements_per_snapshot=every, seed=5)
        one = simulate_cells(
            workload, POLICIES[policy], cells=1, ids=ids, placements_per_snapshot=every, redraws=3, seed=5
        )
        assert msgspec.json.encode(one.result) == msgspec.json.encode(plain)
        assert one.full_elsewhere == one.redraws == one.cell_spread == 0


def test_one_cell_is_never_full_while_it_has_a_free_slot() -> None:
    result = run(fleet([10] * 8, creates=400), 1, fill=0.9)
    assert result.result.failed_creates == result.full_elsewhere == 0
    assert result.fill == pytest.approx(71 / 80)  # Of the 72 slots that stay taken, one is given back for each create.
    assert sum(result.result.loads.values()) == 72


# -- full cells


def test_a_fixed_id_is_refused_by_its_full_cell_though_another_one_has_a_free_slot() -> None:
    failed = 0
    for seed in range(10):
        result = run(fleet([5, 5], creates=10), 2, seed=seed)
        placed = sum(result.result.loads.values())
        assert placed + result.result.failed_creates == 10
        # Nothing ends, so the other cell had a free slot at each refusal if it has one at the end.
        assert result.full_elsewhere == result.result.failed_creates
        assert result.full_share == result.full_elsewhere / 10
        failed += result.full_elsewhere
    assert failed > 0


def test_a_create_that_no_cell_has_a_slot_for_is_no_fault_of_the_cells() -> None:
    results = [run(fleet([5, 5], creates=40), 2, ids) for ids in (Ids.FIXED, Ids.REDRAWN, Ids.MADE)]
    assert [(each.result.failed_creates, each.result.spread) for each in results] == [(30, 0)] * 3
    fixed, redrawn, made = (each.full_elsewhere for each in results)
    assert 30 > fixed > redrawn >= made == 0


def test_a_free_slot_of_another_pool_does_not_count() -> None:
    workload = fleet([4, 9, 4, 9], creates=20, pools="gpu cpu", wants="gpu")
    result = run(workload, 2, Ids.MADE)
    assert {name: load for name, load in result.result.loads.items() if load} == {"w000": 4, "w002": 4}
    assert result.result.failed_creates == 12 and result.full_elsewhere == 0


def test_an_id_that_the_server_makes_finds_every_free_slot_if_the_views_are_fresh() -> None:
    for cells in range(2, OTHERS_MAX + 2):
        result = run(fleet([5] * 12, creates=60), cells, Ids.MADE)
        assert result.result.failed_creates == 0 and {*result.result.loads.values()} == {5}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_cell_without_workers_is_full(policy: str) -> None:
    workload = fleet([20, 20], creates=60, replicas=2)
    for ids in Ids:
        result = simulate_cells(
            workload, POLICIES[policy], cells=3, ids=ids, placements_per_snapshot=5, redraws=3, seed=3
        )
        assert sum(result.result.loads.values()) + result.result.failed_creates == 60
        assert (result.full_elsewhere > 0) or ids is not Ids.FIXED


# -- ids that are drawn again


def test_a_client_that_draws_again_is_refused_less() -> None:
    workload = fleet([10] * 32, creates=2_000, replicas=4)
    fixed, redrawn, made = (run(workload, 16, ids, fill=0.9, placements_per_snapshot=10) for ids in Ids)
    assert fixed.full_share > 0.02 > redrawn.full_share >= made.full_share
    assert fixed.redraws == made.redraws == 0 < redrawn.redraws


def test_ids_of_the_server_fill_the_cells_more_evenly_than_fixed_ones() -> None:
    workload = fleet([50] * 16, creates=400, replicas=4)
    spreads = [
        [run(workload, 8, ids, fill=0.5, placements_per_snapshot=10, seed=seed).cell_spread for seed in range(5)]
        for ids in (Ids.FIXED, Ids.MADE)
    ]
    fixed, made = map(sum, spreads)
    assert made < fixed


def test_no_draws_left_is_a_fixed_id() -> None:
    workload = fleet([5] * 8, creates=300)
    fixed = run(workload, 4, Ids.FIXED, fill=0.9)
    without = run(workload, 4, Ids.REDRAWN, fill=0.9, redraws=0)
    assert fixed.full_elsewhere > 0
    assert (without.result, without.full_elsewhere, without.redraws) == (fixed.result, fixed.full_elsewhere, 0)


def test_a_client_draws_no_other_id_where_no_cell_seems_to_have_a_free_slot() -> None:
    result = run(fleet([3, 3], creates=200), 2, Ids.REDRAWN)
    assert result.result.failed_creates == 194 and result.full_elsewhere == 0
    assert result.redraws < 20  # While one of the cells was full, and not both.


# -- fill, seeds, Workers


@pytest.mark.parametrize("ids", list(Ids))
def test_the_fleet_stays_as_full_as_it_was_filled(ids: Ids) -> None:
    result = run(fleet([10] * 12, creates=500, replicas=2), 4, ids, fill=0.8, placements_per_snapshot=50)
    assert 0.78 < result.fill < 0.8
    assert 90 < sum(result.result.loads.values()) <= 96
    assert result.result.creates == 500


def test_a_fleet_that_is_fuller_is_emptied_first() -> None:
    workload = fleet([10] * 4, creates=50)
    full = Workload(
        "full",
        workload.pools,
        tuple(SimulatedWorker(each.worker, each.pool, 10, 10) for each in workload.workers),
        *(workload.digital_ids, 1, workload.arrivals),
    )
    result = run(full, 2, Ids.MADE, fill=0.5)
    assert result.fill == pytest.approx(19 / 40) and sum(result.result.loads.values()) == 20


def test_the_same_seed_is_the_same_result() -> None:
    workload = fleet([5] * 8, creates=200, replicas=3)
    for ids in Ids:
        again = [run(workload, 4, ids, fill=0.9, seed=seed, placements_per_snapshot=20) for seed in (1, 1, 2)]
        assert again[0] == again[1] != again[2]


def test_a_fleet_that_would_take_minutes_to_fill_is_refused() -> None:
    workload = fleet([1_000_001], creates=1)
    with pytest.raises(BadValue, match="1000001 slots"):
        run(workload, 2, fill=0.9)
    assert run(workload, 2, Ids.MADE).result.failed_creates == 0


def test_workers_are_dealt_to_the_cells_pool_by_pool() -> None:
    names = [f"c{n}" for n in range(4)]
    workload = fleet([1] * 22, creates=1, pools="gpu cpu")
    parts = dealt(workload, names, "even")
    assert sorted(each.worker for part in parts for each in part.workers) == [each.worker for each in workload.workers]
    for pool in ("gpu", "cpu"):
        counts = [sum(each.pool == pool for each in part.workers) for part in parts]
        assert sum(counts) == 11 and max(counts) - min(counts) <= 1
    assert {len(part.workers) for part in parts} <= {5, 6}


def test_workers_that_choose_themselves_give_each_cell_as_many_slots() -> None:
    names = [f"c{n}" for n in range(4)]
    assert [len(part.workers) for part in dealt(fleet([1] * 64, creates=1), names, "chosen")] == [16] * 4
    parts = dealt(fleet([1, 2, 4, 8] * 16, creates=1), names, "chosen")
    slots = [sum(each.capacity for each in part.workers) for part in parts]
    assert sum(slots) == 240 and max(slots) - min(slots) <= 8


# -- the true loads, where slots are given back


def test_the_store_finds_the_emptiest_worker_after_slots_were_given_back() -> None:
    rng = Random(7)
    cell = Cell(fleet([2, 3, 4, 5, 9], creates=1))
    for _ in range(3_000):
        taken = [worker for worker, load in cell.loads.items() if load]
        if taken and rng.random() < 0.48:
            cell.end(rng.choice(taken))
            continue
        before = {worker: load / cell.capacities[worker] for worker, load in cell.loads.items()}
        before = {worker: share for worker, share in before.items() if share < 1}
        placed = cell.place((), ("gpu",))
        assert (placed.worker is None) == (not before)
        if placed.worker is not None:
            assert before[placed.worker] == min(before.values())
        assert cell.free["gpu"] == sum(cell.capacities.values()) - sum(cell.loads.values())


# -- the cells in which a create is tried


def test_a_create_is_tried_in_the_emptier_of_two_random_cells_first() -> None:
    firsts: Counter[str] = Counter()
    for seed in range(300):
        firsts[cells_to_try({"a": 9, "b": 5, "c": 1}, Random(seed))[0]] += 1
    assert firsts["c"] == 0 and firsts["a"] > firsts["b"] > 0


def test_then_in_the_others_with_free_slots_the_emptiest_first() -> None:
    free = {"a": 0, "b": 2, "c": 7, "d": 3, "e": 5, "f": 4}
    for seed in range(50):
        first, *others = cells_to_try(free, Random(seed))
        assert others == [cell for cell in ("c", "e", "f", "d", "b") if cell != first][:OTHERS_MAX]


def test_one_cell_and_cells_without_free_slots_are_tried_once() -> None:
    assert cells_to_try({"a": 0}, Random(1)) == ["a"]
    assert len(cells_to_try({"a": 0, "b": 0, "c": 0}, Random(1))) == 1


# -- the plan and the command


@pytest.mark.parametrize(
    ("keys", "counts"),
    [({}, ()), ({"cells": 4}, (1, 4)), ({"cells": [16, 4]}, (1, 4, 16)), ({"cells": 1, "fill": 0}, (1,))],
)
def test_a_plan_names_the_cells_to_compare_with_one(keys: dict[str, Any], counts: tuple[int, ...]) -> None:
    good = {"workers": [{"pool": "a", "capacity": 4}], "digital_ids": [{"name": "x", "pools": [{"pool": "a"}]}]}
    assert cell_counts(plan_of({**good, **keys}, "here")) == counts


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"cells": 65}, "<= 64"),
        ({"cells": 0}, ">= 1"),
        ({"cells": 2, "fill": 1.1}, "<= 1"),
        ({"cells": 2, "worker_cells": "odd"}, "worker_cells"),
    ],
)
def test_a_bad_plan_of_cells_says_what_is_wrong(keys: dict[str, Any], said: str) -> None:
    good = {"workers": [{"pool": "a", "capacity": 4}], "digital_ids": [{"name": "x", "pools": [{"pool": "a"}]}]}
    with pytest.raises(BadValue, match="plan here") as caught:
        plan_of({**good, **keys}, "here")
    assert said in str(caught.value)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(PLAN)
    return path


def test_the_table_fits_eighty_columns(plan: Path) -> None:
    result = CliRunner().invoke(app, ["simulate", str(plan), "--cells", "4,16", "--seeds", "1"])
    assert result.exit_code == 0, result.output
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["CELLS", "IDS", "PER", "SNAPSHOT", "POLICY", "FULL", "FAILED", "CELL", "SPREAD", "FILL"]
    assert [row.split()[:2] for row in rows] == [
        ["1", "any"],
        *(["4", kind] for kind in ("fixed", "redrawn", "made")),
        *(["16", kind] for kind in ("fixed", "redrawn", "made")),
    ]
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_rows_as_json(plan: Path) -> None:
    plan.write_text(PLAN + "cells: 4\nworker_cells: chosen\n")
    arguments = ["simulate", str(plan), "--seeds", "2", "--policy", "exact", "--fill", "0.5", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["seeds"], told["fill"], told["worker_cells"]) == (2, 0.5, "chosen")
    assert [(row["cells"], row["ids"]) for row in told["rows"]] == [
        (1, "any"),
        *((4, kind) for kind in ("fixed", "redrawn", "made")),
    ]
    for row in told["rows"]:
        assert row["policy"] == "exact" and row["creates"] == 200 and row["placements_per_snapshot"] == 10
        assert 0 <= row["full_elsewhere"] <= row["failed_creates"]
        assert row["full_share"] == pytest.approx(row["full_elsewhere"] / 200)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cells", "2", "--plot", "x.png"], "--plot draws the spreads of one cell"),
        (["--fill", "0.5"], "fill and worker_cells are for several cells"),
        (["--cells", ","], "--cells names no number"),
    ],
)
def test_options_that_do_not_go_together(plan: Path, options: list[str], said: str) -> None:
    assert said in str(CliRunner().invoke(app, ["simulate", str(plan), *options]).exception)


def test_numbers_of_cells_are_checked(plan: Path) -> None:
    for cells in ("0", "65", "two"):
        refused = CliRunner().invoke(app, ["simulate", str(plan), "--cells", cells])
        assert refused.exit_code == 2 and "must be numbers from 1 to 64" in " ".join(refused.output.split())
