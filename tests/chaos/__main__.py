"""`python -m tests.chaos`: a storm from the command line. Exits with 1 if it found a violation."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from pathlib import Path

from tests.chaos.deployment import Size
from tests.chaos.faults import LOSSES
from tests.chaos.storm import Report, run

NAMED_MUTANTS = {
    "guard-off": "release-guard-off",
    "departing-freed-early": "departing-freed-early",
    "beat-ignored": "expire-ignores-beat",
}
"""The three that every storm must see, and what they are called in tests/conformance/lua_mutants."""

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
    parser.add_argument("--mutant", default="", help=f"a wrong script: {', '.join(NAMED_MUTANTS)}, or any lua_mutant")
    parser.add_argument("--mutants", action="store_true", help="each of the named ones, until it is seen; a table")
    parser.add_argument("--keep", type=Path, default=None, help="copy logs and records here in the end")
    parser.add_argument("--quiet", action="store_true", help="do not print every fault")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    size = Size(workers=given.workers, lives=given.lives)
    if given.mutants:
        return table(seed, given.minutes, size)
    report = one(seed, given.minutes, size, given.mutant, given.faults, quiet=given.quiet, keep=given.keep)
    print_report(report, given)
    return 1 if report.violations else 0


def one(
    seed: int,
    minutes: float,
    size: Size,
    mutant: str = "",
    faults: str = "all",
    *,
    quiet: bool = True,
    keep: Path | None = None,
) -> Report:
    def say(line: str) -> None:
        if not quiet or line.startswith("VIOLATION"):
            print(line, flush=True)

    print(f"seed {seed}, {minutes:g} minutes of storm" + (f", mutant {mutant}" if mutant else ""), flush=True)
    name = NAMED_MUTANTS.get(mutant, mutant)
    return asyncio.run(
        run(
            seed=seed,
            storm_s=minutes * 60,
            size=size,
            faults=faults,
            mutant=name,
            until_red=bool(mutant),
            keep=keep,
            say=say,
        )
    )


def table(seed: int, minutes: float, size: Size) -> int:
    """How long each mutant lives. One that is never seen is a failure of this storm."""
    rows, unseen = ["| mutant | seen after | by |", "|---|---|---|"], 0
    for mutant in NAMED_MUTANTS:
        report = one(seed, minutes, size, mutant)
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
        f"steps        {report.steps}, all followed by the model, in {report.judged_s:.1f} s of CPU",
        f"lives        {report.lives}, items accepted {report.accepted}, of these lost {report.lost},"
        f" dropped {counted(report.dropped) or 'none'}",
        f"consumed     {report.consumed}, of these again {report.consumed_twice}",
        f"processes    ended: {counted(report.exits) or 'none'}",
        f"operators    {counted({name: n for name, n in report.answers.items() if name.split()[0] in OPERATORS})}",
        f"calm         {report.calm_s:g} s after the storm",
        *(f"logged       {line}" for line in report.logged[:20]),
        f"violations   {len(report.violations)}",
        *(f"  {violation}" for violation in report.violations[:20]),
    ]
    print("\n".join(lines))
    if report.violations:
        print(
            f"replay: {sys.executable} -m tests.chaos --seed {report.seed} --minutes {given.minutes:g}"
            f" --workers {given.workers} --lives {given.lives} --faults {given.faults}"
            + (f" --mutant {given.mutant}" if given.mutant else "")
        )


def counted(counter: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))


if __name__ == "__main__":
    sys.exit(main())
