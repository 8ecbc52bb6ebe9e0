"""A deployment of several cells in memory: in which cell a live is created, and how often a full cell refuses one.

Inside a cell everything is as in fleet.py. A live whose id is given belongs to the cell of that id (cells/fixed.py):
where that is full, the create is refused, although another cell may have free slots. A client that may take any id
draws others then. An id that the server makes follows the free slots (cells/tries.py), as the replica's views show
them.

With a `fill` the fleet is filled to that share of its slots first, which is not counted. From then on a random live
ends before each create, so that the fleet stays as full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Literal

from dhsched.cells.fixed import cell_of
from dhsched.cells.tries import cells_to_try
from dhsched.cells.workers import Slots, choose_cell
from dhsched.errors import BadValue
from dhsched.placement import Policy
from dhsched.simulate.fleet import Cell, Counts, Result, SeenCell, SimulatedWorker, Workload, result_of

FILL_SLOTS_MAX = 1_000_000  # A fleet with more slots is not filled: that would take minutes for each run.
FILL_CREATES = 2  # Creates per slot to fill; what is not taken by then stays free, and the result says how full it was.

WorkerCells = Literal["even", "chosen"]
"""How Workers get their cells: `even`, those of a Pool in turn; `chosen`, as each one chooses for itself when all
register at once, before there are lives."""


class Ids(Enum):
    """Who makes the ids of the lives."""

    FIXED = "fixed"  # The application, which needs this id and no other.
    REDRAWN = "redrawn"  # The client, which draws another id if the cell of the first one is full.
    MADE = "made"  # The server.


@dataclass(frozen=True, slots=True)
class CellsResult:
    """The figures of one run over several cells."""

    cells: int
    ids: Ids
    result: Result  # Over all Workers, as of a run over one cell.
    fill: float  # Share of the slots that was taken before a create, on average.
    full_elsewhere: int  # Creates that failed while some cell had a free slot for them.
    redraws: int  # Ids that clients drew after the first one.
    cell_spread: float  # Highest minus lowest load / capacity over the cells, after the last create.

    @property
    def full_share(self) -> float:
        """The share of the creates that were answered FULL while some cell had a free slot."""
        return self.full_elsewhere / max(1, self.result.creates)


def simulate_cells(
    workload: Workload,
    policy: Policy,
    *,
    cells: int,
    ids: Ids,
    placements_per_snapshot: int,
    redraws: int = 0,
    fill: float = 0.0,
    worker_cells: WorkerCells = "even",
    seed: int = 0,
) -> CellsResult:
    """Run a workload over `cells` cells, and return its figures. All cells are refreshed at once, every
    `placements_per_snapshot` creates of the deployment. A client draws up to `redraws` ids after the first one.

    One cell without `fill` gives the result of `simulate`.
    """
    slots = sum(each.capacity for each in workload.workers)
    if fill and slots > FILL_SLOTS_MAX:
        raise BadValue(f"the fleet has {slots} slots, and one of more than {FILL_SLOTS_MAX} is not filled; give fill 0")
    run = _Run(workload, policy, cells, every=placements_per_snapshot, worker_cells=worker_cells, seed=seed)
    run.ids, run.redraws_max = ids, redraws if ids is Ids.REDRAWN else 0
    target = max(1, round(fill * slots)) if fill else None
    if target is not None:
        run.fill(target)
    taken = 0
    for replica, digital_id in workload.arrivals:
        if target is not None:
            run.end_down_to(target - 1)
        taken += run.taken
        run.create(replica, digital_id)
    return CellsResult(
        cells=cells,
        ids=ids,
        result=result_of(workload, policy, [seen.cell for seen in run.cells], run.counts),
        fill=taken / max(1, slots * len(workload.arrivals)),
        full_elsewhere=run.full_elsewhere,
        redraws=run.redraws,
        cell_spread=_cell_spread([seen.cell for seen in run.cells]),
    )


def dealt(workload: Workload, names: Sequence[str], worker_cells: WorkerCells) -> list[Workload]:
    """Return the workload of each cell: the same Pools, DigitalIDs and replicas, and the Workers of this cell."""
    members: dict[str, list[SimulatedWorker]] = {name: [] for name in names}
    cells = (_even if worker_cells == "even" else _chosen)(workload.workers, names)
    for worker, cell in zip(workload.workers, cells, strict=True):
        members[cell].append(worker)
    return [replace(workload, workers=tuple(some)) for some in members.values()]


def _even(workers: Sequence[SimulatedWorker], names: Sequence[str]) -> Iterator[str]:
    """Yield the cell of each Worker: those of one Pool in turn, beginning where the Pool before has ended."""
    turns: dict[str, int] = {}
    for number, worker in enumerate(workers):
        turn = turns.setdefault(worker.pool, number)
        turns[worker.pool] = turn + 1
        yield names[turn % len(names)]


def _chosen(workers: Sequence[SimulatedWorker], names: Sequence[str]) -> Iterator[str]:
    """Yield the cell that each Worker chooses, one after the other, in a fleet that has no lives yet."""
    present: defaultdict[tuple[str, str], Slots] = defaultdict(lambda: Slots(0, 0))
    for worker in workers:
        slots = {name: present[worker.pool, name] for name in names}
        cell = choose_cell(None, slots, name=worker.worker)
        before = present[worker.pool, cell]
        present[worker.pool, cell] = Slots(before.free + worker.capacity, before.capacity + worker.capacity)
        yield cell


def _cell_spread(cells: Sequence[Cell]) -> float:
    shares = [sum(each.loads.values()) / sum(each.capacities.values()) for each in cells if each.loads]
    return max(shares) - min(shares)


class _Run:
    """The cells, the lives in them, and what is counted."""

    def __init__(
        self, workload: Workload, policy: Policy, cells: int, *, every: int, worker_cells: WorkerCells, seed: int
    ) -> None:
        self._names = [f"c{number}" for number in range(cells)]
        self._arrivals = workload.arrivals
        self.cells = [SeenCell(each, policy, every=every) for each in dealt(workload, self._names, worker_cells)]
        self.ids = Ids.FIXED
        self.redraws_max = 0
        self.counts = Counts()
        self.full_elsewhere = 0
        self.redraws = 0
        self.taken = sum(each.load for each in workload.workers)
        self._ends = False  # Whether lives end, so that their places must be remembered.
        self._lives: list[tuple[Cell, str]] = []
        self._number = 0
        # Ids, cells and ends have random numbers of their own: so a run over one cell makes the choices of `simulate`.
        self._chance = Random(seed)
        self._draws = Random(f"cells {seed}")

    def create(self, replica: int, digital_id: int) -> None:
        """Have a replica create a live, in one cell after another, as the maker of its id does."""
        for seen in self.cells:
            seen.refresh(self._number)
        now = float(self._number)
        self._number += 1
        self.counts.creates += 1
        for seen in self._tries(replica, digital_id):
            placed = seen.create(replica, digital_id, rng=self._chance, now=now)
            self.counts.attempted(placed)
            if placed.worker is not None:
                self.taken += 1
                if self._ends:
                    self._lives.append((seen.cell, placed.worker))
                return
        self.counts.failed += 1
        self.full_elsewhere += any(seen.is_free(digital_id) for seen in self.cells)

    def fill(self, target: int) -> None:
        """Create lives like those of the workload, or end some, until `target` slots are taken; count nothing."""
        self._ends = True
        for seen in self.cells:
            for worker, load in seen.cell.loads.items():
                self._lives += [(seen.cell, worker)] * load
        self.end_down_to(target)
        for _ in range(FILL_CREATES * target):
            if self.taken >= target:
                break
            self.create(*self._arrivals[self._draws.randrange(len(self._arrivals))])
        self.counts, self.full_elsewhere, self.redraws = Counts(), 0, 0

    def end_down_to(self, most: int) -> None:
        """End random lives until at most so many slots are taken."""
        while self.taken > most:
            at = self._draws.randrange(len(self._lives))
            cell, worker = self._lives[at]
            self._lives[at] = self._lives[-1]
            self._lives.pop()
            cell.end(worker)
            self.taken -= 1

    def _tries(self, replica: int, digital_id: int) -> Iterator[SeenCell]:
        """Yield the cells in which the create is tried, as long as it is refused."""
        if self.ids is Ids.MADE:
            free = {seen: seen.seems_free(replica, digital_id) for seen in self.cells}
            yield from cells_to_try(free, self._draws)
            return
        yield (last := self._cell_of_new_id())
        for _ in range(self.redraws_max):
            # The refusal says whether another cell has free slots, by the views of the replica that answers.
            if not any(seen.seems_free(replica, digital_id) for seen in self.cells if seen is not last):
                return
            self.redraws += 1
            yield (last := self._cell_of_new_id())

    def _cell_of_new_id(self) -> SeenCell:
        live = f"default/lv-{self._draws.getrandbits(64):016x}"
        return self.cells[self._names.index(cell_of(self._names, live))]
