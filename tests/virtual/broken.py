"""A rule is broken by chance, nobody is told which, and virtual runs look for it.

    python -m tests.virtual.broken --pick 1

Dense seeds run, each with its own schedule, until one finds a violation. Its schedule is shrunk and printed, and only
then the rule and what it took. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from contextlib import closing
from random import Random

from tests.virtual import schedule
from tests.virtual.__main__ import shrunk
from tests.virtual.apart import Found, run_all
from tests.virtual.mutants import BROKEN
from tests.virtual.schedule import draw_faults

SWARM = "dense"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.virtual.broken", description=__doc__)
    parser.add_argument("--pick", type=int, required=True, help="Number that chooses the rule and the seeds.")
    parser.add_argument("--hours", type=float, default=0.08, help="Virtual hours of each run. [default: 0.08]")
    parser.add_argument("--seeds", type=int, default=200, help="Runs after which it is given up. [default: 200]")
    parser.add_argument(
        "--cpu-max", type=float, default=600.0, help="CPU seconds after which no run begins. [default: 600]"
    )
    given = parser.parse_args()
    r = Random(f"broken {given.pick}")
    mutant, first = r.choice(sorted(name for name in BROKEN if not BROKEN[name].cells)), r.randrange(10**6)
    spent_s, tried = 0.0, 0
    with closing(run_all(first, given.seeds, given.hours, mutant=mutant, swarm=SWARM, first=True)) as runs:
        for found in runs:
            spent_s, tried = spent_s + found.cpu_s, tried + 1
            print(f"# seed {found.line['seed']}: {len(found.violations)} violations", file=sys.stderr)
            if found.violations or spent_s > given.cpu_max:
                break
    took = f"{spent_s:.0f} s of CPU and {tried} seeds"
    if not found.violations:
        print(f"no violation in {took}; the broken rule was: {BROKEN[mutant].rule} ({mutant})")
        return 1
    print(found.violations[0][:1000])
    print(f"# found after {took}", flush=True)
    explain(given.hours, found, mutant, tried=tried, spent_s=spent_s)
    return 0


def explain(hours: float, found: Found, mutant: str, *, tried: int, spent_s: float) -> None:
    """Print the shortest schedule that finds it again, and only then which rule was broken."""
    seed, began_s = found.line["seed"], children_cpu_s()
    faults = draw_faults(seed, hours, SWARM)
    shorter, left = shrunk(seed, hours, faults, found, mutant=mutant, swarm=SWARM)
    print(f"# seed {seed}, {shorter} hours, {len(left)} of {len(faults)} faults")
    print(schedule.written(left), end="")
    result = {
        "rule": BROKEN[mutant].rule,
        "mutant": mutant,
        "judge": found.violations[0].split(": ")[1],
        "seeds": tried,
        "found_cpu_s": round(spent_s),
        "shrunk_cpu_s": round(children_cpu_s() - began_s),
        "faults": len(faults),
        "faults_left": len(left),
    }
    print(json.dumps(result), flush=True)


def children_cpu_s() -> float:
    """CPU time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
