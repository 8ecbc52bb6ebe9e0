"""A fleet in memory: replicas with their own views, the true loads, and admission as atomic as the store's.

Creates happen one after another, each at one replica, which chooses from its own view with the code of the product. The
staleness of views is set in placements per snapshot. The same workload, policy and seed give the same result.
"""

from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heapreplace
from random import Random
from typing import NamedTuple, TypeVar

from dhsched.placement import (
    DigitalID,
    FleetView,
    NoEligiblePool,
    Policy,
    Pool,
    Snapshot,
    WorkerRow,
    choose,
    request_for,
    view_for,
)
from dhsched.placement.share import WINDOWS
from dhsched.types import Candidates, Equals

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class SimulatedWorker:
    """A Worker and the slots taken on it before the first create."""

    worker: str
    pool: str
    capacity: int
    load: int
    labels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Workload:
    """A fleet, and the creates that arrive at its replicas."""

    name: str
    pools: tuple[Pool, ...]
    workers: tuple[SimulatedWorker, ...]
    digital_ids: tuple[DigitalID, ...]
    replicas: int
    arrivals: tuple[tuple[int, int], ...]  # (replica, index of the DigitalID), in order.


class Schedule(Enum):
    """When the replicas get new loads, each time `placements_per_snapshot` creates after the last."""

    TOGETHER = "together"  # All replicas take the same snapshot at the same time: the paper's schedule.
    STAGGERED = "staggered"  # Each replica takes a snapshot at its own time.
    WORKERS = "workers"  # Each Worker sends its load to all replicas at its own time, as Orleans silos do.


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one run that the paper reports (paper, 8.1)."""

    policy: str
    creates: int
    failed_creates: int  # Creates that ended without a Worker.
    rejected_candidates: int  # Attempts that a full Worker rejected.
    fallback_placements: int  # Creates that the store placed itself after all attempts were rejected.
    off_tier_share: float  # Share of placed creates outside their DigitalID's preferred tier.
    spread: int  # Highest minus lowest load over all Workers,
    utilisation_spread: float  # and the same of load / capacity.
    pool_spreads: dict[str, int]  # The spread within each Pool,
    pool_utilisation_spreads: dict[str, float]  # and the same of load / capacity.
    loads: dict[str, int]


def simulate(
    workload: Workload,
    policy: Policy,
    *,
    placements_per_snapshot: int,
    seed: int = 0,
    schedule: Schedule = Schedule.TOGETHER,
    fallback: bool = True,
    same_chance: bool = False,
) -> Result:
    """Run a workload under a policy and return its figures. Without `fallback` a create fails when all its attempts do,
    as in the paper.

    `same_chance` gives every replica the same sequence of random numbers, as if all were started from one seed: their
    random choices then no longer keep them apart.
    """
    cell = _Cell(workload)
    views = [view_for(policy, replicas=workload.replicas) for _ in range(workload.replicas)]
    for view in views:
        view.configure(workload.pools)
        view.apply(cell.snapshot(None), now=0.0)
    requests = [request_for(each) for each in workload.digital_ids]
    preferred = [_preferred_pools(request.pools) for request in requests]
    rng = Random(seed)
    chances = [Random(seed) if same_chance else rng for _ in views]
    together = _Together(views, cell) if schedule is Schedule.TOGETHER else None
    failed = rejected = fallbacks = off_tier = 0
    for number, (replica, digital_id) in enumerate(workload.arrivals):
        view = views[replica]
        if together is None:
            if number:
                _refresh(views, cell, workload, number, placements_per_snapshot, schedule)
        else:
            if number and number % placements_per_snapshot == 0:
                together.refresh(float(number))
            together.catch_up(replica)
        choice = choose(view, requests[digital_id], rng=chances[replica], now=float(number), policy=policy)
        assert not isinstance(choice, NoEligiblePool), choice.reason
        # A policy that names no candidates relies on the store to find a free slot: then that is not a fallback.
        placed = cell.place(choice.ranks, choice.pools if fallback or not choice.ranks else ())
        rejected += len(placed.refused)
        if policy.corrects:
            for worker in placed.refused:
                view.correct(worker, rev=cell.rev, load=cell.loads[worker])
        if placed.worker is None:
            failed += 1
            continue
        view.committed(placed.worker, rev=cell.rev)
        fallbacks += placed.by_fallback
        off_tier += cell.pool_of[placed.worker] not in preferred[digital_id]
    return Result(
        policy=policy.name,
        creates=len(workload.arrivals),
        failed_creates=failed,
        rejected_candidates=rejected,
        fallback_placements=fallbacks,
        off_tier_share=off_tier / max(1, len(workload.arrivals) - failed),
        spread=_width(list(cell.loads.values())),
        utilisation_spread=_width([load / cell.capacities[worker] for worker, load in cell.loads.items()]),
        pool_spreads={pool: _width([cell.loads[worker] for worker in each]) for pool, each in cell.members.items()},
        pool_utilisation_spreads={
            pool: _width([cell.loads[worker] / cell.capacities[worker] for worker in each])
            for pool, each in cell.members.items()
        },
        loads=dict(cell.loads),
    )


def _refresh(
    views: list[FleetView], cell: "_Cell", workload: Workload, number: int, every: int, schedule: Schedule
) -> None:
    """Give each replica the loads that are due before create `number`, for the schedules STAGGERED and WORKERS."""
    if schedule is Schedule.STAGGERED:
        for replica, view in enumerate(views):
            if (number + replica * every // len(views)) % every == 0:
                view.apply(cell.snapshot(view.rev), now=float(number))
    else:
        fleet = workload.workers
        for at in range((number - 1) * len(fleet) // every, number * len(fleet) // every):
            worker = fleet[at % len(fleet)].worker
            for view in views:
                view.correct(worker, rev=cell.rev, load=cell.loads[worker])


class _Together:
    """One snapshot for all replicas, which each replica applies only before its next decision; the result is the same.

    With a snapshot for every create, 15 of 16 replicas would otherwise rebuild a view that they do not use. Rows are as
    of the refresh, and the windows of the share weight close as if every snapshot had been applied at once.
    """

    def __init__(self, views: list[FleetView], cell: "_Cell") -> None:
        self._views = views
        self._cell = cell
        self._rows: dict[str, WorkerRow] = {}
        self._revs: list[int] = []  # Revision of every refresh; only placements raise it, so it is also `placed`.
        self._taken = [0] * len(views)  # Number of refreshes that each replica has applied.
        self._at = 0.0

    def refresh(self, now: float) -> None:
        since = self._revs[-1] if self._revs else 0
        self._rows.update({row.worker: row for row in self._cell.snapshot(since).rows})
        self._revs.append(self._cell.rev)
        self._at = now

    def catch_up(self, replica: int) -> None:
        taken, revs = self._taken[replica], self._revs
        if taken == len(revs):
            return
        view = self._views[replica]
        for rev in revs[max(taken, len(revs) - 1 - WINDOWS) : -1]:
            view.share.close_window(rev)
        names = dict.fromkeys(self._cell.winners(view.rev, revs[-1]))
        rows = tuple([self._rows[name] for name in names])
        view.apply(Snapshot(rev=revs[-1], placed=revs[-1], rows=rows, since=view.rev), now=self._at)
        self._taken[replica] = len(revs)


def _width(values: list[T]) -> T:
    return max(values) - min(values)


def _preferred_pools(entries: tuple[tuple[str, int], ...]) -> frozenset[str]:
    best = min(tier for _, tier in entries)
    return frozenset(pool for pool, tier in entries if tier == best)


class _Placed(NamedTuple):
    worker: str | None
    refused: list[str]
    by_fallback: bool = False


class _Cell:
    """The true loads, and the order in which slots are taken."""

    def __init__(self, workload: Workload) -> None:
        self.rev = 0
        self.loads = {worker.worker: worker.load for worker in workload.workers}
        self.capacities = {worker.worker: worker.capacity for worker in workload.workers}
        self.pool_of = {worker.worker: worker.pool for worker in workload.workers}
        self.members: dict[str, list[str]] = {}
        for worker in workload.workers:
            self.members.setdefault(worker.pool, []).append(worker.worker)
        self._labels = {worker.worker: worker.labels for worker in workload.workers}
        self._winners: list[str] = []  # The Worker of each placement, so the change of rev r is at r - 1.
        self._changed = dict.fromkeys(self.loads, 0)
        self._room: dict[str, list[tuple[float, str]]] = {pool.name: [] for pool in workload.pools}
        for worker in workload.workers:
            self._room[worker.pool].append((worker.load / worker.capacity, worker.worker))
        for heap in self._room.values():
            heapify(heap)

    def place(self, candidates: Candidates, pools: tuple[str, ...]) -> _Placed:
        """Place on the first candidate with a free slot, the emptiest of equals; else on the emptiest Worker of the
        first Pool with a free slot."""
        refused: list[str] = []
        for candidate in candidates:
            asked = candidate.workers if isinstance(candidate, Equals) else (candidate,)
            roomy = [worker for worker in asked if self.loads[worker] < self.capacities[worker]]
            refused += [worker for worker in asked if worker not in roomy] if len(roomy) < len(asked) else []
            if roomy:
                best = min(roomy, key=lambda worker: self.loads[worker] / self.capacities[worker])
                self._take(best)
                return _Placed(best, refused)
        for pool in pools:
            if (emptiest := self._emptiest(pool)) is not None:
                self._take(emptiest)
                return _Placed(emptiest, refused, by_fallback=True)
        return _Placed(None, refused)

    def snapshot(self, since: int | None) -> Snapshot:
        names = self.loads if since is None else dict.fromkeys(self._winners[since:])
        return Snapshot(rev=self.rev, placed=self.rev, rows=tuple([self._row(name) for name in names]), since=since)

    def winners(self, since: int, until: int) -> list[str]:
        """Return the Worker of each placement after revision `since`, up to `until`."""
        return self._winners[since:until]

    def _row(self, worker: str) -> WorkerRow:
        return WorkerRow(
            worker,
            self.pool_of[worker],
            self.loads[worker],
            self.capacities[worker],
            labels=self._labels[worker],
            rev=self._changed[worker],
        )

    def _take(self, worker: str) -> None:
        self.rev += 1
        self.loads[worker] += 1
        self._changed[worker] = self.rev
        self._winners.append(worker)

    def _emptiest(self, pool: str) -> str | None:
        """Return the emptiest Worker with a free slot. Loads only rise here, so an outdated entry of the heap is too
        low: correct it and look again."""
        heap = self._room[pool]
        while heap:
            noted, worker = heap[0]
            load, capacity = self.loads[worker], self.capacities[worker]
            if load >= capacity:
                heappop(heap)
            elif load / capacity != noted:
                heapreplace(heap, (load / capacity, worker))
            else:
                return worker
        return None
