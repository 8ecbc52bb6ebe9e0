"""Virtual runs from the command line (docs/internals/virtual-runs.md).

    python -m tests.virtual --hours 1 --seed 7
    python -m tests.virtual --hours 0.05 --seed 1 --seeds 2000 --append
    python -m tests.virtual --hours 25 --seed 1 --swarm small --append

A run that finds a violation is shrunk to the fewest faults and printed as a schedule. The last line is one JSON object
per seed: the same seed prints the same line.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.virtual import hour_book, passed, schedule
from tests.virtual.apart import Found, run_all, run_apart
from tests.virtual.schedule import Fault, draw_faults
from tests.virtual.shrink import kind_of, shrink, time_of
from tests.virtual.swarm import SWARMS

AFTER_S = 5.0  # A run that is shrunk ends this long after its violation.


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.virtual", description="Virtual runs.")
    parser.add_argument("--hours", type=float, default=1.0, help="Virtual hours of each run. [default: 1]")
    parser.add_argument("--seed", type=int, help="Seed of the first run. [default: random]")
    parser.add_argument("--seeds", type=int, default=1, help="Number of runs, of consecutive seeds. [default: 1]")
    parser.add_argument(
        "--cpu-max", type=float, default=0.0, help="CPU seconds after which no run begins. [default: none]"
    )
    parser.add_argument("--schedule", type=Path, help="File with the faults, instead of those of the seed.")
    parser.add_argument("--mutant", default="", help="Name of a mutant to break the product with.")
    parser.add_argument("--trace", default="", help="File for the whole trace.")
    parser.add_argument(
        "--append",
        action="store_true",
        help="Write a row per hundred seeds to tests/virtual/hours.csv, and the sum to README.md.",
    )
    parser.add_argument("--real", action="store_true", help="Use a real Valkey server as the store.")
    parser.add_argument("--no-shrink", action="store_true", help="Print a violation without looking for fewer faults.")
    parser.add_argument(
        "--swarm",
        choices=SWARMS,
        default="any",
        help="Deployments to draw from: any of one cell, small ones with every limit at its default, or ones of "
        "several cells. [default: any]",
    )
    given = parser.parse_args()
    if given.seed is None:
        given.seed = secrets.randbelow(2**31)
    return int(not drive(given))


def drive(given: argparse.Namespace) -> bool:
    """Run the seeds until one fails; return whether none did. What has run is written down, also after an interrupt."""
    batch, cpu_s = list[Found](), 0.0
    commit = hour_book.current_commit() if given.append else ""
    faults = schedule.read(given.schedule.read_text()) if given.schedule else None
    runs = run_all(
        given.seed,
        given.seeds,
        given.hours,
        faults,
        mutant=given.mutant,
        trace=given.trace,
        swarm=given.swarm,
        real=given.real,
    )
    try:
        with closing(runs):
            for found in runs:
                batch.append(found)
                cpu_s += found.cpu_s
                told = f"# {found.cpu_s:.1f} s of CPU, {found.cpu_s / given.hours:.0f} s for a virtual hour"
                print(told, file=sys.stderr)
                if given.append and given.swarm == "small":
                    passed.write_table(found.line["seed"], found.passed)
                if given.append and (found.violations or len(batch) == hour_book.BATCH_SEEDS):
                    hour_book.add(batch, commit)
                    batch = []
                if found.violations:
                    drawn = draw_faults(found.line["seed"], given.hours, given.swarm)
                    explain(given, drawn if faults is None else faults, found)
                print(json.dumps(found.line), flush=True)
                if found.violations:
                    return False
                if 0 < given.cpu_max <= cpu_s:
                    break
    finally:
        if given.append and batch:
            hour_book.add(batch, commit)
    return True


def explain(given: argparse.Namespace, faults: Sequence[Fault], found: Found) -> None:
    """Print what was found, the steps before it, and the shortest schedule that finds it again."""
    for violation in found.violations:
        print(violation[:2000])
    print("# the end of the trace before the first one")
    for line in found.latest:
        print("   ", line)
    if given.no_shrink:
        return
    seed = found.line["seed"]
    hours, left = shrunk(seed, given.hours, faults, found, mutant=given.mutant, swarm=given.swarm)
    print(f"# {len(left)} of {len(faults)} faults are enough; save the rows and repeat it with")
    again = f"--seed {seed} --hours {hours} --schedule FILE"
    again += f" --mutant {given.mutant}" if given.mutant else ""
    again += f" --swarm {given.swarm}" if given.swarm != "any" else ""
    print(f"# python -m tests.virtual {again}")
    print(schedule.written(left), end="")


def shrunk(
    seed: int, hours: float, faults: Sequence[Fault], found: Found, *, mutant: str, swarm: str = "any"
) -> tuple[float, list[Fault]]:
    """Return the fewest faults that fail in the same way, and how long a run must be."""
    kind, at_s = kind_of(found.violations[0]), time_of(found.violations[0])
    if at_s < hours * 3600:
        hours = round((at_s + AFTER_S) / 3600, 5)
        faults = [fault for fault in faults if fault.at_s < at_s]

    def fails(some: Sequence[Fault]) -> bool:
        again = run_apart(seed, hours, some, mutant=mutant, swarm=swarm, first=True)
        return any(kind_of(violation) == kind for violation in again.violations)

    return hours, shrink(faults, fails)


if __name__ == "__main__":
    sys.exit(main())
