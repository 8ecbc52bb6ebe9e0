"""`make mutants`: try what was not noticed before, and say how many mutants are noticed."""

from __future__ import annotations

import argparse
import sys

from tests.mutation import lua, python
from tests.mutation.results import FOLDER, Results, reasons

KINDS = {"lua": (lua.try_all, 0.97), "python": (python.try_all, 0.90)}
"""How the mutants are tried, and the share of them that must be noticed."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("kinds", choices=[*KINDS, []], nargs="*", help="the kinds of mutants to try; without any, all")
    parser.add_argument("--only", default="", help="part of a file's name: try the mutants of these files alone")
    given = parser.parse_args()
    return max([report(kind, given.only) for kind in given.kinds or KINDS])


def report(kind: str, only: str) -> int:
    """Try the mutants of one kind; return an exit code."""
    try_all, least = KINDS[kind]
    results = Results(FOLDER / f"{kind}.csv")
    try_all(results, lambda line: print(line, flush=True), only)
    survivors, known = [row for row in results.rows if not row.killer], reasons()
    count = len(results.rows)
    share = 1 - len(survivors) / max(count, 1)
    print(f"{kind}: {count} mutants, {count - len(survivors)} noticed ({share:.1%}), {len(survivors)} survive")
    unexplained = [row.name for row in survivors if row.name not in known]
    for name in unexplained:
        print(f"no reason in survivors.txt: {name}")
    return 0 if share >= least and not unexplained else 1


if __name__ == "__main__":
    sys.exit(main())
