"""`python -m tests.chaos`: a storm from the command line. Exits with 1 if it found a violation."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from pathlib import Path
from typing import get_args

from tests.chaos.deployment import Size
from tests.chaos.faults import LOSSES, kinds_of
from tests.chaos.hostile import REPEATS
from tests.chaos.report import Report
from tests.chaos.store import StoreKind
from tests.chaos.storm import run
from tests.harness.servers import SERVERS

NAMED_MUTANTS = {
    "guard-off": "release-guard-off",
    "departing-freed-early": "departing-freed-early",
    "beat-ignored": "expire-ignores-beat",
}
"""The three that every storm must see, and what they are called in tests/conformance/lua_mutants."""

IN_A_CLUSTER = {"look-off": "look-off"}
"""What a storm on a cluster must see beside them."""

OPERATORS = {"move", "cordon", "uncordon", "drain", "undrain", "end"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of storm; start, healing and judging come on top")
    parser.add_argument("--seed", type=int, default=None, help="decides every fault and every item")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--lives", type=int, default=36)
    parser.add_argument(
        "--faults",
        default="all",
        help=f"all, lossless (none of {', '.join(LOSSES)}), or kinds with commas between them",
    )
    parser.add_argument("--store", choices=get_args(StoreKind), default="replicated", help="kind of store")
    parser.add_argument("--server", choices=SERVERS, default=None, help="of the store [default: as dhsched prefers]")
    mutants = ", ".join(NAMED_MUTANTS | IN_A_CLUSTER)
    parser.add_argument("--mutant", default="", help=f"a wrong script: {mutants}, or any lua_mutant")
    parser.add_argument("--mutants", action="store_true", help="each of the named ones, until it is seen; a table")
    parser.add_argument("--hostile", action="store_true", help="with a hostile Worker and a hostile viewer")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of each valid message by the hostile side")
    parser.add_argument("--keep", type=Path, default=None, help="copy logs and records here in the end")
    parser.add_argument("--quiet", action="store_true", help="do not print every fault")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    size = Size(workers=given.workers, lives=given.lives)
    try:
        kinds_of(given.faults, given.store)
    except ValueError as error:
        parser.error(str(error))
    if given.mutants:
        return table(seed, given, size)
    report = one(seed, given, size, given.mutant)
    print_report(report, given)
    return 1 if report.violations else 0


def one(seed: int, given: argparse.Namespace, size: Size, mutant: str) -> Report:
    def say(line: str) -> None:
        if not given.quiet or line.startswith("VIOLATION"):
            print(line, flush=True)

    print(f"seed {seed}, {given.minutes:g} minutes of storm" + (f", mutant {mutant}" if mutant else ""), flush=True)
    name = NAMED_MUTANTS.get(mutant, mutant)
    return asyncio.run(
        run(
            seed=seed,
            storm_s=given.minutes * 60,
            size=size,
            faults=given.faults,
            store=given.store,
            server=given.server,
            mutant=name,
            hostile=given.repeats if given.hostile else 0,
            until_red=bool(mutant),
            keep=given.keep,
            say=say,
        )
    )


def table(seed: int, given: argparse.Namespace, size: Size) -> int:
    """How long each mutant lives. One that is never seen is a failure of this storm."""
    given.quiet = True
    rows, unseen = ["| mutant | seen after | by |", "|---|---|---|"], 0
    for mutant in NAMED_MUTANTS | (IN_A_CLUSTER if given.store == "cluster" else {}):
        report = one(seed, given, size, mutant)
        seen = report.red_after_s is not None
        unseen += not seen
        judge = report.violations[0].partition(":")[0] if seen else "-"
        rows.append(f"| {mutant} | {f'{report.red_after_s:g} s' if seen else 'not seen'} | {judge} |")
    print("\n".join(rows))
    return 1 if unseen else 0


def print_report(report: Report, given: argparse.Namespace) -> None:
    lines = [
        f"seed         {report.seed}",
        f"faults       {sum(report.faults.values())}: {counted(report.faults)}",
        f"moved        {sum(report.moved.values())}: {counted(report.moved)}",
        *resharded(report),
        f"steps        {report.steps}, all followed by the model, in {report.judged_s:.1f} s of CPU",
        f"lives        {report.lives}, items accepted {report.accepted}, of these lost {report.lost},"
        f" dropped {counted(report.dropped) or 'none'}",
        f"consumed     {report.consumed}, of these again {report.consumed_twice}",
        f"processes    ended: {counted(report.exits) or 'none'}",
        f"operators    {counted({name: n for name, n in report.answers.items() if name.split()[0] in OPERATORS})}",
        f"calm         {report.calm_s:g} s after the storm",
        *(
            [
                f"hostile      {report.hostile_steps} steps of its own; the honest viewer saw {report.frames} frames of"
                f" {report.pictures} generations"
            ]
            if report.coverage
            else []
        ),
        *(f"logged       {line}" for line in report.logged[:20]),
        f"violations   {len(report.violations)}",
        *(f"  {violation}" for violation in report.violations[:20]),
    ]
    print("\n".join([*report.coverage, "", *lines] if report.coverage else lines))
    if report.violations:
        print(
            f"replay: {sys.executable} -m tests.chaos --seed {report.seed} --minutes {given.minutes:g}"
            f" --workers {given.workers} --lives {given.lives} --faults {given.faults}"
            f" --store {given.store}"
            + (f" --server {given.server}" if given.server else "")
            + (f" --mutant {given.mutant}" if given.mutant else "")
            + (f" --hostile --repeats {given.repeats}" if given.hostile else "")
        )


def resharded(report: Report) -> list[str]:
    """The line about the cell's slot, if it was moved."""
    if not report.resharded:
        return []
    moves = sum(count for way, count in report.resharded.items() if "failed" not in way)
    return [f"resharded    {moves}: {counted(report.resharded)}; {report.keys_moved} keys one by one"]


def counted(counter: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))


if __name__ == "__main__":
    sys.exit(main())
