"""`python -m evaluation NAME|all|report|list [--quick] [--seed N] [--part NAME] [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from evaluation.catalogue import EXPERIMENTS
from evaluation.experiment import Experiment, Size
from evaluation.files import write_csv
from evaluation.parts import run_parts
from evaluation.report import read_tables, write_report

RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    names = [experiment.name for experiment in EXPERIMENTS]
    parser = argparse.ArgumentParser(prog="python -m evaluation", description=__doc__)
    parser.add_argument("name", choices=[*names, "all", "report", "list"], help="an experiment, or all of them")
    parser.add_argument("--quick", action="store_true", help="few seeds and trials; into results/quick")
    parser.add_argument("--seed", type=int, default=1, help="the first of the common seeds (1)")
    parser.add_argument("--json", action="store_true", help="nothing but one JSON object with the tables at the end")
    parser.add_argument("--part", default="", help="only this part, such as day_0 of production: its rows, no tables")
    parser.add_argument("--processes", type=int, default=None, help="at once; as many as there are cores")
    parser.add_argument("--out", type=Path, default=None, help="where results go")
    given = parser.parse_args(arguments)
    if given.name == "list":
        print("\n".join(f"{one.name:12} {one.title} ({one.paper})" for one in EXPERIMENTS))
        return 0
    folder: Path = given.out or (RESULTS / "quick" if given.quick else RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [] if given.name == "report" else [one for one in EXPERIMENTS if given.name in ("all", one.name)]
    size = Size(quick=given.quick, seed=given.seed)
    if given.part:
        for one in chosen:
            rows = run_parts(one, size, folder, processes=given.processes, quiet=given.json, only=given.part)
            print(json.dumps(rows))
        return 0
    took = {one.name: run(one, size, folder, given.processes, given.json) for one in chosen}
    if given.name == "report":
        for one in EXPERIMENTS:
            draw(one, folder)
    report = write_report(EXPERIMENTS, folder)
    if given.json:
        tables = {one.name: read_tables(one, folder) for one in chosen}
        print(json.dumps({"quick": given.quick, "seed": given.seed, "seconds": took, "tables": tables}))
    else:
        print(report)
    return 0


def run(experiment: Experiment, size: Size, folder: Path, processes: int | None, quiet: bool) -> float:
    """Run what has not been run, write the tables, draw; how long it took in seconds."""
    began = time.monotonic()
    rows = run_parts(experiment, size, folder, processes=processes, quiet=quiet)
    for name, table in experiment.tables(rows).items():
        write_csv(folder / f"{name}.csv", table)
    draw(experiment, folder)
    return round(time.monotonic() - began, 1)


def draw(experiment: Experiment, folder: Path) -> None:
    tables = read_tables(experiment, folder)
    if tables:
        experiment.draw(tables, folder)


if __name__ == "__main__":
    sys.exit(main())
