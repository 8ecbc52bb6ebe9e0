"""Virtual runs of consecutive seeds, one after another: what `apart.py` starts.

python -m tests.virtual.one SEED HOURS [--seeds N] [--swarm small] [--schedule FILE] [--mutant NAME] [--trace FILE]
    [--first] [--real]

Everything is imported once; each run is a child of its own, which begins as this process was then. So nothing of a run
is in the next one. Each child writes its report as one line of JSON to the standard output.
"""

# ruff: noqa: E402
from __future__ import annotations

from tests.virtual import entropy

entropy.install()  # Before anything of the product is imported: modules bind functions of `time` as defaults.

import argparse
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.virtual import mutants, schedule

if TYPE_CHECKING:
    from tests.virtual.run import Result

RUN_MAX_S, HOUR_MAX_S = 3_600, 1_200
"""A run that takes longer than the first, and the second for each of its hours, hangs: only a loop without waits does
that on virtual time."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.virtual.one")
    parser.add_argument("seed", type=int)
    parser.add_argument("hours", type=float)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--swarm", default="any")
    parser.add_argument("--schedule", type=Path)
    parser.add_argument("--mutant", default="")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--real", action="store_true")
    given = parser.parse_args()
    if given.mutant:
        mutants.plant(given.mutant)
    from tests.virtual.run import run

    reports = os.dup(1)
    os.dup2(2, 1)  # What else is printed is no report.
    gc.collect()
    gc.freeze()
    for seed in range(given.seed, given.seed + given.seeds):
        if not (child := os.fork()):
            signal.alarm(RUN_MAX_S + int(given.hours * HOUR_MAX_S))
            try:
                os.write(reports, report(seed, given, run))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"the run of seed {seed} ended with {os.waitstatus_to_exitcode(status)}")


def report(seed: int, given: argparse.Namespace, run: Callable[..., Result]) -> bytes:
    """Run a seed and return what was found."""
    from tests.virtual.real import LEFT_OUT

    drawn = schedule.draw_faults(seed, given.hours, given.swarm)
    faults = drawn if given.schedule is None else schedule.read(given.schedule.read_text())
    if given.real:
        faults = [fault for fault in faults if fault.kind not in LEFT_OUT]
    result = run(
        seed, given.hours, faults, swarm=given.swarm, trace_file=given.trace, first=given.first, real=given.real
    )
    found = {
        "line": result.line(),
        "violations": result.violations,
        "latest": result.latest,
        "cpu_s": result.cpu_s,
        "answers": result.answers,
        "passed": result.passed,
    }
    return json.dumps(found).encode() + b"\n"


main()
