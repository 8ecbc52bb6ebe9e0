"""`python -m tests.attack`: prints a table of the rounds, then one line of JSON. Exits with 1 if a push of B failed."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from tests.attack.rounds import Round, Size, run, summary

RATIO_MAX = 2.0  # The promise: attacked by control, of the P99 of tenant B's pushes.


def main() -> int:
    default = Size()
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--rounds", type=int, default=default.rounds, help="of each side")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="of each round")
    parser.add_argument("--rate", type=float, default=default.rate, help="pushes of tenant B per second")
    parser.add_argument("--scale", type=float, default=default.scale, help="of the attackers' rates")
    parser.add_argument("--answers", action="store_true", help="print what the attackers were answered in each round")
    given = parser.parse_args()
    size = Size(given.rounds, given.seconds, given.rate, given.scale)
    print(f"{'round':>10} {'pushes':>7} {'failed':>7} {'P50 ms':>8} {'P99 ms':>8} {'attacks/s':>10} {'refused':>8}")

    def say(one: Round) -> None:
        print(
            f"{one.side:>10} {one.pushes:7} {one.failed:7} {one.p50_ms:8.2f} {one.p99_ms:8.2f} "
            f"{one.attacks_per_s:10.1f} {one.refused:8}",
            flush=True,
        )
        if given.answers:
            for kind, counts in one.answers.items():
                print(f"{'':>10} {kind}: {counts}", flush=True)

    found = summary(asyncio.run(run(size, say)))
    if found["ratio_p99"] > RATIO_MAX:
        print(f"ratio_p99 is {found['ratio_p99']}, and should be at most {RATIO_MAX:g}", file=sys.stderr)
    print(json.dumps(found))
    return 1 if found["failed"] or found["ratio_p99"] > RATIO_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
