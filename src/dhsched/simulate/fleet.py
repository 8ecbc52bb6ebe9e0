"""A fleet in memory: replicas with their own views, the true loads, and admission as atomic as the store's.

Creates happen one after another, each at one replica, which chooses from its own view with the code of the product. The
staleness of views is set in placements per snapshot. The same workload, policy and seed give the same result.

`simulate` runs a workload over one cell; cells.py over several, each of which is a SeenCell, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush, heapreplace
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


@dataclass(slots=True)
class Counts:
    """What a run counts of its creates."""

    creates: int = 0
    failed: int = 0
    rejected: int = 0
    fallbacks: int = 0
    off_tier: int = 0

    def attempted(self, placed: "Placed") -> None:
        """Count one attempt in one cell. A create without a Worker is counted by who gives up."""
        self.rejected += len(placed.refused)
        if placed.worker is not None:
            self.fallbacks += placed.by_fallback
            self.off_tier += placed.off_tier


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
    seen = SeenCell(workload, policy, every=placements_per_snapshot, schedule=schedule, fallback=fallback)
    rng = Random(seed)
    chances = [Random(seed) if same_chance else rng for _ in range(workload.replicas)]
    counts = Counts(creates=len(workload.arrivals))
    for number, (replica, digital_id) in enumerate(workload.arrivals):
        seen.refresh(number)
        placed = seen.create(replica, digital_id, rng=chances[replica], now=float(number))
        counts.attempted(placed)
        counts.failed += placed.worker is None
    return result_of(workload, policy, [seen.cell], counts)


def result_of(workload: Workload, policy: Policy, cells: Sequence["Cell"], counts: Counts) -> Result:
    """Return the figures of a run over these cells, which have the workload's Workers between them."""
    found = {worker: load for cell in cells for worker, load in cell.loads.items()}
    loads = {each.worker: found[each.worker] for each in workload.workers}
    capacities = {each.worker: each.capacity for each in workload.workers}
    members: dict[str, list[str]] = {}
    for each in workload.workers:
        members.setdefault(each.pool, []).append(each.worker)
    return Result(
        policy=policy.name,
        creates=counts.creates,
        failed_creates=counts.failed,
        rejected_candidates=counts.rejected,
        fallback_placements=counts.fallbacks,
        off_tier_share=counts.off_tier / max(1, counts.creates - counts.failed),
        spread=_width(list(loads.values())),
        utilisation_spread=_width([load / capacities[worker] for worker, load in loads.items()]),
        pool_spreads={pool: _width([loads[worker] for worker in each]) for pool, each in members.items()},
        pool_utilisation_spreads={
            pool: _width([loads[worker] / capacities[worker] for worker in each]) for pool, each in members.items()
        },
        loads=loads,
    )


def _width(values: list[T]) -> T:
    return max(values) - min(values)


class SeenCell:
    """A cell, and the view that each replica has of it, refreshed every `every` creates."""

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        *,
        every: int,
        schedule: Schedule = Schedule.TOGETHER,
        fallback: bool = True,
    ) -> None:
        self.cell = Cell(workload)
        self._workers = workload.workers
        self._policy = policy
        self._every = every
        self._schedule = schedule
        self._fallback = fallback
        self._requests = [request_for(each) for each in workload.digital_ids]
        self._preferred = [_preferred_pools(request.pools) for request in self._requests]
        self._views = [view_for(policy, replicas=workload.replicas) for _ in range(workload.replicas)]
        for view in self._views:
            view.configure(workload.pools)
            view.apply(self.cell.snapshot(None), now=0.0)
        self._together = _Together(self._views, self.cell) if schedule is Schedule.TOGETHER else None

    def refresh(self, number: int) -> None:
        """Take the snapshots that are due before create `number`."""
        if not number:
            return
        if self._together is None:
            self._refresh_apart(number)
        elif number % self._every == 0:
            self._together.refresh(float(number))

    def create(self, replica: int, digital_id: int, *, rng: Random, now: float) -> "Placed":
        """Have a replica create a live, and return what the cell answers."""
        view = self._view(replica)
        choice = choose(view, self._requests[digital_id], rng=rng, now=now, policy=self._policy)
        assert not isinstance(choice, NoEligiblePool), choice.reason
        # A policy that names no candidates relies on the store to find a free slot: then that is not a fallback.
        placed = self.cell.place(choice.ranks, choice.pools if self._fallback or not choice.ranks else ())
        if self._policy.corrects:
            for worker in placed.refused:
                view.correct(worker, rev=self.cell.rev, load=self.cell.loads[worker])
        if placed.worker is None:
            return placed
        view.committed(placed.worker, rev=self.cell.rev)
        return placed._replace(off_tier=self.cell.pool_of[placed.worker] not in self._preferred[digital_id])

    def seems_free(self, replica: int, digital_id: int) -> int:
        """Return the free slots for a DigitalID, as this replica sees them."""
        return self._view(replica).free_slots(self._requests[digital_id].pools)

    def is_free(self, digital_id: int) -> bool:
        """Return whether there is in truth a free slot for a DigitalID."""
        return any(self.cell.free[pool] > 0 for pool, _ in self._requests[digital_id].pools)

    def _view(self, replica: int) -> FleetView:
        if self._together is not None:
            self._together.catch_up(replica)
        return self._views[replica]

    def _refresh_apart(self, number: int) -> None:
        """Give each replica the loads that are due before create `number`, for the schedules STAGGERED and WORKERS."""
        every, views, cell = self._every, self._views, self.cell
        if self._schedule is Schedule.STAGGERED:
            for replica, view in enumerate(views):
                if (number + replica * every // len(views)) % every == 0:
                    view.apply(cell.snapshot(view.rev), now=float(number))
        else:
            fleet = self._workers
            for at in range((number - 1) * len(fleet) // every, number * len(fleet) // every):
                worker = fleet[at % len(fleet)].worker
                for view in views:
                    view.correct(worker, rev=cell.rev, load=cell.loads[worker])


class _Together:
    """One snapshot for all replicas, which each replica applies only before its next decision; the result is the same.

    With a snapshot for every create, 15 of 16 replicas would otherwise rebuild a view that they do not use. Rows are as
    of the refresh, and the windows of the share weight close as if every snapshot had been applied at once.
    """

    def __init__(self, views: list[FleetView], cell: "Cell") -> None:
        self._views = views
        self._cell = cell
        self._rows: dict[str, WorkerRow] = {}
        self._revs: list[int] = []  # Revision at every refresh,
        self._placed: list[int] = []  # and the placements until then.
        self._taken = [0] * len(views)  # Number of refreshes that each replica has applied.
        self._at = 0.0

    def refresh(self, now: float) -> None:
        since = self._revs[-1] if self._revs else 0
        self._rows.update({row.worker: row for row in self._cell.snapshot(since).rows})
        self._revs.append(self._cell.rev)
        self._placed.append(self._cell.placed)
        self._at = now

    def catch_up(self, replica: int) -> None:
        taken, revs = self._taken[replica], self._revs
        if taken == len(revs):
            return
        view = self._views[replica]
        for placed in self._placed[max(taken, len(revs) - 1 - WINDOWS) : -1]:
            view.share.close_window(placed)
        names = dict.fromkeys(self._cell.changed(view.rev, revs[-1]))
        rows = tuple([self._rows[name] for name in names])
        view.apply(Snapshot(rev=revs[-1], placed=self._placed[-1], rows=rows, since=view.rev), now=self._at)
        self._taken[replica] = len(revs)


def _preferred_pools(entries: tuple[tuple[str, int], ...]) -> frozenset[str]:
    best = min(tier for _, tier in entries)
    return frozenset(pool for pool, tier in entries if tier == best)


class Placed(NamedTuple):
    """What a cell answers to a create: the Worker, None if no slot is free, and the candidates that were full."""

    worker: str | None
    refused: list[str]
    by_fallback: bool = False
    off_tier: bool = False


class Cell:
    """The true loads, and the order in which slots are taken and given back."""

    def __init__(self, workload: Workload) -> None:
        self.rev = 0
        self.placed = 0
        self.loads = {worker.worker: worker.load for worker in workload.workers}
        self.capacities = {worker.worker: worker.capacity for worker in workload.workers}
        self.pool_of = {worker.worker: worker.pool for worker in workload.workers}
        self.free = {pool.name: 0 for pool in workload.pools}  # Free slots by Pool.
        self._labels = {worker.worker: worker.labels for worker in workload.workers}
        self._changes: list[str] = []  # The Worker of each change, so that of rev r is at r - 1.
        self._changed = dict.fromkeys(self.loads, 0)
        self._shares = {worker.worker: worker.load / worker.capacity for worker in workload.workers}
        self._by_share: dict[str, list[tuple[float, str]]] = {pool.name: [] for pool in workload.pools}
        for worker in workload.workers:
            self.free[worker.pool] += worker.capacity - worker.load
            self._by_share[worker.pool].append((self._shares[worker.worker], worker.worker))
        for heap in self._by_share.values():
            heapify(heap)

    def place(self, candidates: Candidates, pools: tuple[str, ...]) -> Placed:
        """Place on the first candidate with a free slot, the emptiest of equals; else on the emptiest Worker of the
        first Pool with a free slot."""
        refused: list[str] = []
        for candidate in candidates:
            asked = candidate.workers if isinstance(candidate, Equals) else (candidate,)
            able = [worker for worker in asked if self.loads[worker] < self.capacities[worker]]
            refused += [worker for worker in asked if worker not in able] if len(able) < len(asked) else []
            if able:
                best = min(able, key=lambda worker: self.loads[worker] / self.capacities[worker])
                self._take(best)
                return Placed(best, refused)
        for pool in pools:
            if (emptiest := self._emptiest(pool)) is not None:
                self._take(emptiest)
                return Placed(emptiest, refused, by_fallback=True)
        return Placed(None, refused)

    def end(self, worker: str) -> None:
        """Give back a slot of a Worker."""
        self._change(worker, -1)
        share = self._shares[worker] = self.loads[worker] / self.capacities[worker]
        heappush(self._by_share[self.pool_of[worker]], (share, worker))

    def snapshot(self, since: int | None) -> Snapshot:
        names = self.loads if since is None else dict.fromkeys(self._changes[since:])
        return Snapshot(rev=self.rev, placed=self.placed, rows=tuple([self._row(name) for name in names]), since=since)

    def changed(self, since: int, until: int) -> list[str]:
        """Return the Worker of each change after revision `since`, up to `until`."""
        return self._changes[since:until]

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
        self.placed += 1
        self._change(worker, 1)

    def _change(self, worker: str, slots: int) -> None:
        self.rev += 1
        self.loads[worker] += slots
        self.free[self.pool_of[worker]] -= slots
        self._changed[worker] = self.rev
        self._changes.append(worker)

    def _emptiest(self, pool: str) -> str | None:
        """Return the emptiest Worker with a free slot.

        An entry that became too low as slots were taken is corrected when it comes up. A slot that is given back adds
        an entry, and the one before, which `_shares` does not name any more, is dropped.
        """
        heap = self._by_share[pool]
        while heap:
            noted, worker = heap[0]
            load, capacity = self.loads[worker], self.capacities[worker]
            if load >= capacity or noted != self._shares[worker]:
                heappop(heap)
            elif load / capacity != noted:
                self._shares[worker] = load / capacity
                heapreplace(heap, (load / capacity, worker))
            else:
                return worker
        return None
