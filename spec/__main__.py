"""`python -m spec`: TLC over every configuration and mutant; the explorer beside it; the counts that the tests assert.

python -m spec                  what `make spec` runs, some minutes
python -m spec --long           the larger configurations
python -m spec Fence Terms      only these
python -m spec --write          and keep the counts in spec/counts.json
python -m spec --explore Fence  only the explorer: needs no Java, prints the path to a violation
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from spec import tlc
from spec.checks import CHECKS, Row, is_long, read_counts, run_check, run_mutant, world, write_counts
from spec.explore import explore
from spec.mutants import MUTANTS

PROCESSES = 2


def main() -> int:
    arguments = parse()
    if arguments.explore:
        return explore_only(arguments.names)
    try:
        tlc.find_jar()
        tlc.check_java()
    except tlc.Missing as missing:
        print(f"SKIPPED: the specification was NOT checked: {missing}")
        return 0
    began = time.perf_counter()
    rows = run_all(jobs(arguments.names, long=arguments.long))
    failed = [row for row in rows if not row.ok]
    for row in failed:
        print(f"\n{row.name}, {row.expected}, but:\n{row.detail}")
    drifted = settle_counts(rows, write=arguments.write)
    print(f"\n{len(rows)} checks, {len(failed)} failed, {time.perf_counter() - began:.0f} s")
    return 1 if failed or drifted else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m spec", description="Check the specification with TLC.")
    parser.add_argument("names", nargs="*", help="configurations or mutants; all if none is named")
    parser.add_argument("--long", action="store_true", help="the larger configurations")
    parser.add_argument("--write", action="store_true", help="keep the counts in spec/counts.json")
    parser.add_argument("--explore", action="store_true", help="only the explorer")
    return parser.parse_args()


def jobs(names: list[str], *, long: bool) -> list[Callable[[], Row]]:
    """The slow ones first, so that the end of the run is not one process waiting for another."""
    known = {check.name for check in CHECKS} | {mutant.name for mutant in MUTANTS}
    unknown = sorted(set(names) - known)
    if unknown:
        raise SystemExit(f"no such configuration or mutant: {', '.join(unknown)}")
    wanted = [check for check in CHECKS if (check.name in names if names else check.long == long)]
    broken = [m for m in MUTANTS if m.tlc and (m.name in names if names else is_long(m.tlc[0]) == long)]
    wanted.sort(key=lambda check: (check.quick, not check.compare))
    return [*(partial(run_check, check) for check in wanted), *(partial(run_mutant_named, m.name) for m in broken)]


def run_mutant_named(name: str) -> Row:
    """A mutant carries functions that cannot travel to another process; its name can."""
    return run_mutant(next(mutant for mutant in MUTANTS if mutant.name == name))


def run_all(work: Iterable[Callable[[], Row]]) -> list[Row]:
    print(f"{'configuration or mutant':30}{'states':>9}{'seconds':>9}  {'expected':20}ok", flush=True)
    rows = []
    with ProcessPoolExecutor(PROCESSES) as pool:
        for done in as_completed([pool.submit(job) for job in work]):
            row = done.result()
            states = "" if row.states is None else f"{row.states:,}"
            print(
                f"{row.name:30}{states:>9}{row.seconds:9.1f}  {row.expected:20}{'yes' if row.ok else 'NO'}", flush=True
            )
            rows.append(row)
    return rows


def settle_counts(rows: list[Row], *, write: bool) -> bool:
    """The counts of this run against those that the tests assert; whether they differ."""
    compared = {check.name for check in CHECKS if check.compare}
    derived = {row.name: row.states for row in rows if row.ok and row.name in compared and row.states is not None}
    try:
        kept = read_counts()
    except FileNotFoundError:
        kept = {}
    if write:
        merged = {**kept, **derived}
        write_counts({check.name: merged[check.name] for check in CHECKS if check.name in merged})
        return False
    drifted = {name: count for name, count in derived.items() if kept.get(name) != count}
    for name, count in drifted.items():
        print(f"{name}: {count} states, spec/counts.json has {kept.get(name)}; if that is meant, run with --write")
    return bool(drifted)


def explore_only(names: list[str]) -> int:
    wrong = False
    for name in names or [check.name for check in CHECKS if check.quick]:
        explored = explore(world(name))
        print(f"{name:30}{explored.states:9,}{explored.seconds:9.1f}  {explored.violation or 'no violation'}")
        wrong = wrong or explored.violation is not None
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
