"""The evaluation: it repeats from its seed, it goes on where it stopped, and it sees when the product breaks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dhsched.placement import POLICIES, policies
from dhsched.placement.index import PoolView, WorkerView
from dhsched.simulate import simulate
from evaluation import __main__ as command
from evaluation import admission, authority, files, guards, placement, recovery, sensitivity
from evaluation import hierarchy as over_pools
from evaluation.catalogue import EXPERIMENTS
from evaluation.experiment import Experiment, Part, Row, Size
from evaluation.parts import run_parts
from evaluation.report import write_report
from evaluation.statistics import mean_and_half, share_interval
from evaluation.workloads import burst, hierarchy
from tests.harness.patching import everywhere

ROOT = Path(__file__).parents[2]
AT_1000 = {"staleness": 1_000, "first": 1, "seeds": 1}
TINY: dict[str, list[Part]] = {
    "authority": [
        Part(f"run_{one.name}", authority.run, {"protocol": one.name, "delay_ms": 250.0, "seed": 1, "runs": 8})
        for one in guards.PROTOCOLS
    ],
    "recovery": [
        Part("late_none", recovery.run, {"checks": "none", "probability": 0.5, "late_ms": 1e3, "seed": 1, "trials": 40})
    ],
    "admission": [
        Part("model_4_0", admission.run, {"contenders": 4, "atomic": False, "think": 0.4, "seed": 1, "trials": 20})
    ],
    "placement": [Part("sweep_paper", placement.run, {"policy": "bottom-tier-paper", **AT_1000})],
    "hierarchy": [Part("exact", over_pools.run, {"policy": "exact", "fill": 0.9, "fallback": True, **AT_1000})],
    "sensitivity": [
        Part(name, sensitivity.run, {"policy": name, "replicas": 1, "traffic": "even", **AT_1000})
        for name in ("strict-min", "bottom-tier")
    ],
}


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_tables_repeat_to_the_byte_from_a_seed(experiment: Experiment, tmp_path: Path) -> None:
    if experiment.name not in TINY:
        assert experiment.measured, f"{experiment.name} depends on nothing but its seed: it needs a tiny run here"
        return
    tiny = replace(experiment, parts=lambda _: TINY[experiment.name])
    folders = [tmp_path / "once", tmp_path / "again"]
    for folder in folders:
        folder.mkdir()
        for name, rows in tiny.tables(run_parts(tiny, Size(), folder, processes=1, quiet=True)).items():
            files.write_csv(folder / f"{name}.csv", rows)
    once, again = ({path.name: path.read_bytes() for path in folder.glob("*.csv")} for folder in folders)
    assert once == again
    assert any(table.count(b"\n") > 1 for table in once.values())


def three_squares(start: int) -> list[Row]:
    with Path(CALLS).open("a") as calls:
        calls.write(f"{start}\n")
    return [{"n": n, "square": n * n} for n in range(start, start + 3)]


CALLS = "calls.txt"


def test_finished_parts_are_kept_and_only_the_rest_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = [Part("one", three_squares, {"start": 1})]
    experiment = replace(EXPERIMENTS[0], name="squares", parts=lambda _: wanted, uses=())
    first = run_parts(experiment, Size(), tmp_path, processes=1, quiet=True)
    wanted.append(Part("two", three_squares, {"start": 4}))
    both = run_parts(experiment, Size(), tmp_path, processes=1, quiet=True)
    assert both == {**first, "two": [{"n": n, "square": n * n} for n in (4, 5, 6)]}
    wanted[0] = Part("one", three_squares, {"start": 7})  # Other arguments: what was kept does not answer for it.
    run_parts(experiment, Size(), tmp_path, processes=1, quiet=True)
    assert Path(CALLS).read_text().split() == ["1", "4", "7"]


# -- the code under test is the product's


def violations(protocol: str) -> int:
    (row,) = authority.run(protocol, 1_000.0, 1, 60)
    return int(row["violations"])


def test_each_guard_is_worth_something_and_the_product_has_them_all() -> None:
    assert violations("assignment-only") > 55
    assert 0 < violations("worker-id-only") < violations("claim-only")
    assert violations("guard-lease") == violations("dhsched") == 0


def test_a_broken_fence_shows_in_the_authority_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere(monkeypatch, "guard", lambda *_: None)
    assert violations("dhsched") > 0


def test_a_broken_commit_shows_in_the_recovery_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {"checks": "both", "probability": 0.5, "late_ms": 1e3, "seed": 1, "trials": 60}
    assert recovery.run(**arguments)[0]["resurrected"] == 0
    everywhere(monkeypatch, "check", lambda *_: None)
    assert recovery.run(**arguments)[0]["resurrected"] > 0


def test_a_broken_admission_shows_in_the_admission_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {"contenders": 8, "atomic": True, "think": 0.4, "seed": 1, "trials": 20}
    assert admission.run(**arguments)[0]["overshoots"] == 0
    everywhere(monkeypatch, "refuses", lambda *_: None)
    assert admission.run(**arguments)[0]["overshoots"] == 20


def test_a_broken_policy_shows_in_the_placement_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(pool: PoolView, count: int, *_: object) -> list[WorkerView]:
        return pool.members[:count]

    (sound,) = placement.run("bottom-tier", 1_000, 1, 1)
    monkeypatch.setattr(policies, "draw", draw)
    (broken,) = placement.run("bottom-tier", 1_000, 1, 1)
    assert sound["spread"] <= 14 and sound["failed"] == 0
    assert broken["spread"] > 150 and broken["failed"] > 0


def test_strict_min_does_not_depend_on_who_decides() -> None:
    def spread(replicas: int, weights: Callable[[int], list[float] | None]) -> int:
        workload = burst(1, workers=32, creates=2_000, replicas=replicas, replica_weights=weights(replicas))
        return simulate(workload, POLICIES["strict-min"], placements_per_snapshot=250, seed=1, fallback=False).spread

    even = spread(1, lambda _: None)
    assert {spread(replicas, lambda _: None) for replicas in (4, 16)} == {even}
    assert spread(16, lambda replicas: sensitivity.weights("uneven", replicas)) == even


def test_no_policy_beats_the_offline_optimum() -> None:
    workload = hierarchy(2, creates=2_000, workers=32)
    best, unavoidable = over_pools.optimum(workload)
    result = simulate(workload, POLICIES["exact"], placements_per_snapshot=100, seed=2)
    assert unavoidable <= result.failed_creates
    if unavoidable == result.failed_creates:
        assert best <= result.off_tier_share


def test_the_optimum_counts_what_cannot_be_placed() -> None:
    workload = hierarchy(2, creates=2_000, workers=32)
    workload = replace(workload, workers=tuple(replace(one, load=one.capacity - 1) for one in workload.workers))
    assert over_pools.optimum(workload)[1] == 2_000 - 32


# -- numbers and words


def test_intervals() -> None:
    assert mean_and_half([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.4841), abs=1e-3)
    assert share_interval(0, 100) == pytest.approx((0.0, 0.0370), abs=1e-3)
    low, high = share_interval(50, 100)
    assert (low, high) == pytest.approx((0.4038, 0.5962), abs=1e-3)


def test_the_committed_report_is_what_its_tables_say(tmp_path: Path) -> None:
    """No figure in it was typed: made anew from the CSV files beside it, it is the same."""
    results = ROOT / "evaluation" / "results"
    for path in results.iterdir():
        if path.suffix in (".csv", ".png"):
            shutil.copy(path, tmp_path)
    assert write_report(EXPERIMENTS, tmp_path).read_text() == (results / "REPORT.md").read_text()


def test_the_command_lists_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [one.name for one in EXPERIMENTS]
