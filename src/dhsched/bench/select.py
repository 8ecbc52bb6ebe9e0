"""CPU time of one decision among 1,000 and 10,000 Workers: `choose` with the default policy, and noting its commit.

Times are CPU time of this thread (`time.thread_time_ns`), read before and after each decision: the figures include one
read of that clock and exclude other load of the machine. The garbage collector runs as in the product; objects made
before the measured loop are frozen, as they would be old in a long-running process. A refresh is an incremental
snapshot in which every Worker changed, the worst case; in `refresh_tenth_us` one Worker in ten changed.
"""

import gc
from random import Random
from time import thread_time_ns

from dhsched.bench.harness import percentile
from dhsched.placement import (
    DEFAULT_POLICY,
    FleetView,
    NoEligiblePool,
    PlacementRequest,
    Pool,
    Snapshot,
    WorkerRow,
    choose,
    view_for,
)

CAPACITY = 206
REPLICAS = 16
DECISIONS_PER_SNAPSHOT = 250  # Placements of this replica in 250 ms at its 1,000 creates per second.


def run(*, decisions: int = 20_000, seed: int = 1) -> dict[str, float]:
    """Return percentiles of the time of a decision and of a refresh, in microseconds, for both fleet sizes."""
    figures: dict[str, float] = {}
    for size, suffix in ((1_000, "1k"), (10_000, "10k")):
        costs, refreshes, tenths = _measure(size, decisions, Random(seed))
        figures |= {
            f"p50_us_{suffix}": percentile(costs, 0.50) / 1000,
            f"p99_us_{suffix}": percentile(costs, 0.99) / 1000,
            f"refresh_us_{suffix}": percentile(refreshes, 0.50) / 1000,
            f"refresh_tenth_us_{suffix}": percentile(tenths, 0.50) / 1000,
        }
    return figures


def _measure(size: int, decisions: int, rng: Random) -> tuple[list[int], list[int], list[int]]:
    """Return the nanoseconds of each decision, each refresh of all Workers, and each refresh of a tenth of them."""
    fleet = _Fleet(size, rng)
    view = view_for(DEFAULT_POLICY, replicas=REPLICAS)
    view.configure([Pool("gpu")])
    view.apply(fleet.snapshot(range(size), since=None), now=0.0)
    costs: list[int] = []
    refreshes: list[int] = []
    tenths: list[int] = []
    gc.collect()
    gc.freeze()
    try:
        while len(costs) < decisions:
            costs += [_decide(view, fleet, rng) for _ in range(DECISIONS_PER_SNAPSHOT)]
            refreshes.append(_refresh(view, fleet, range(size)))
            tenths.append(_refresh(view, fleet, range(0, size, 10)))
    finally:
        gc.unfreeze()
    return costs, refreshes, tenths


def _decide(view: FleetView, fleet: "_Fleet", rng: Random) -> int:
    request = PlacementRequest("anna", (("gpu", 0),))
    taken_by_store = rng.choice(fleet.names)  # The store's choice when the policy names no candidate; here any.
    began = thread_time_ns()
    choice = choose(view, request, rng=rng, now=1.0)
    assert not isinstance(choice, NoEligiblePool)
    winner = choice.candidates[0] if choice.candidates else taken_by_store
    view.committed(winner, rev=fleet.take(winner))
    return thread_time_ns() - began


def _refresh(view: FleetView, fleet: "_Fleet", changed: range) -> int:
    """Change the loads of some Workers within their spread, then return the nanoseconds of applying the snapshot."""
    fleet.shift(changed)
    snapshot = fleet.snapshot(changed, since=view.rev)
    began = thread_time_ns()
    view.apply(snapshot, now=2.0)
    return thread_time_ns() - began


class _Fleet:
    """The true loads, between a third and two thirds of capacity."""

    def __init__(self, size: int, rng: Random) -> None:
        self.names = [f"worker-{i:05d}#1" for i in range(size)]
        self.loads = {name: rng.randint(CAPACITY // 3, 2 * CAPACITY // 3) for name in self.names}
        self.rev = 1
        self.placed = 0
        self._rng = rng

    def take(self, worker: str) -> int:
        self.loads[worker] += 1
        self.rev += 1
        self.placed += 1
        return self.rev

    def shift(self, changed: range) -> None:
        for i in changed:
            load = self.loads[self.names[i]] + self._rng.choice((-2, -1, 1, 2))
            self.loads[self.names[i]] = min(max(load, CAPACITY // 3), 2 * CAPACITY // 3)
        self.rev += 1
        self.placed += (REPLICAS - 1) * DECISIONS_PER_SNAPSHOT // 2

    def snapshot(self, changed: range, *, since: int | None) -> Snapshot:
        rows = [
            WorkerRow(name, "gpu", self.loads[name], CAPACITY, rev=self.rev)
            for name in (self.names[i] for i in changed)
        ]
        return Snapshot(rev=self.rev, placed=self.placed, rows=tuple(rows), since=since)
