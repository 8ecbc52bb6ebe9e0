"""What every benchmark shares: CPU time rather than wall time, medians of interleaved rounds, one JSON object last.

On a shared machine the wall clock measures the neighbours. The CPU time of this process, user and system, hardly does;
and comparing two things in alternating rounds of one run cancels most of what is left.
"""

import json
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """What one round took of this process."""

    cpu_us_per_op: float
    ops_per_s: float


async def measure(work: Callable[[], Awaitable[None]], ops: int) -> Cost:
    """Run `work`, which does `ops` operations, once."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    await work()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return Cost(cpu_us_per_op=cpu_s / ops * 1e6, ops_per_s=ops / wall_s)


def median_cost(rounds: list[Cost]) -> Cost:
    return Cost(
        cpu_us_per_op=statistics.median(cost.cpu_us_per_op for cost in rounds),
        ops_per_s=statistics.median(cost.ops_per_s for cost in rounds),
    )


def percentile(values: list[float], share: float) -> float:
    return round(sorted(values)[int(share * (len(values) - 1))], 3) if values else 0.0


def print_result(result: Mapping[str, Any]) -> None:
    """The one line that a script reads: the last one, one JSON object."""
    print(json.dumps(result), flush=True)
