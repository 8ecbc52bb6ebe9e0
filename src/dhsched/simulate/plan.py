"""The plan of a simulation, as its user writes it: a fleet, DigitalIDs and creates. It is checked before anything runs.

    pools:
      - {name: big, priority: 0}
      - {name: small, priority: 1}
    workers:
      - {pool: big, count: 16, capacity: 200, load: [0, 8]}
      - {pool: small, count: 32, capacity: 80}
    digital_ids:
      - {name: anna, pools: [{pool: big}, {pool: small, tier: 1}], weight: 3}
    creates: 4000
    replicas: 4
    placements_per_snapshot: [100, 1000]
    cells: [4, 16]

`load` is the number of slots taken before the first create, or a range to draw it from. `weight` is a DigitalID's share
of the creates. Every policy gets the same fleet and the same creates, drawn from the seed.

The last keys are for a deployment of several cells, and may be left out: `cells` is their number, or several numbers to
compare with one big cell; `fill` the share of the slots that stays taken (by default FILL); `worker_cells` how Workers
get their cells (cells.py).
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgspec

from dhsched.cells.fixed import CELLS_MAX
from dhsched.errors import BadValue
from dhsched.placement import DigitalID, Pool, PoolEntry
from dhsched.simulate.cells import WorkerCells
from dhsched.simulate.fleet import SimulatedWorker, Workload
from dhsched.types import whole

WORKERS_MAX = 20_000  # A plan with more Workers is refused.
FILL = 0.9  # Share of the slots that stays taken where a plan with cells names none.
Name = Annotated[str, whole(r"[A-Za-z0-9._~-]{1,128}")]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
CellCount = Annotated[int, msgspec.Meta(ge=1, le=CELLS_MAX)]


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the plan's parts: an unknown name is refused, not ignored."""


class PlannedPool(Strict, frozen=True):
    name: Name
    priority: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 0
    tier_workers_min: AtLeastOne = 8
    tier_divisor: AtLeastOne = 8
    tau_slots: Count = 8


class PlannedWorkers(Strict, frozen=True):
    """`count` equal Workers of one Pool."""

    pool: Name
    capacity: AtLeastOne
    count: Annotated[int, msgspec.Meta(ge=1, le=WORKERS_MAX)] = 1
    load: Count | Annotated[list[Count], msgspec.Meta(min_length=2, max_length=2)] = 0


class PlannedEntry(Strict, frozen=True):
    pool: Name
    tier: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0


class PlannedDigitalId(Strict, frozen=True):
    name: Name
    pools: Annotated[list[PlannedEntry], msgspec.Meta(min_length=1, max_length=16)]
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0


class Plan(Strict, frozen=True):
    """The whole plan."""

    workers: Annotated[list[PlannedWorkers], msgspec.Meta(min_length=1, max_length=WORKERS_MAX)]
    digital_ids: Annotated[list[PlannedDigitalId], msgspec.Meta(min_length=1, max_length=10_000)]
    pools: Annotated[list[PlannedPool], msgspec.Meta(max_length=10_000)] = []
    creates: AtLeastOne = 1_000
    replicas: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 4
    replica_weights: list[Annotated[float, msgspec.Meta(ge=0)]] = []
    placements_per_snapshot: Annotated[list[AtLeastOne], msgspec.Meta(min_length=1, max_length=32)] = msgspec.field(
        default_factory=lambda: [100, 1_000]
    )
    cells: CellCount | Annotated[list[CellCount], msgspec.Meta(max_length=32)] = []
    fill: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    worker_cells: WorkerCells | None = None

    def __post_init__(self) -> None:
        known = {pool.name for pool in self.pools} | {group.pool for group in self.workers}
        if len({pool.name for pool in self.pools}) != len(self.pools):
            raise ValueError("a Pool is listed twice; list each Pool once")
        for digital_id in self.digital_ids:
            for entry in digital_id.pools:
                if entry.pool not in known:
                    raise ValueError(f"DigitalID {digital_id.name} names Pool {entry.pool}, which is not in the plan")
        for group in self.workers:
            low, high = load_range(group)
            if not low <= high <= group.capacity:
                raise ValueError(
                    f"Workers of {group.pool}: load {low} to {high} does not fit capacity {group.capacity}"
                )
        if self.replica_weights and (len(self.replica_weights) != self.replicas or not sum(self.replica_weights)):
            raise ValueError(f"replica_weights needs {self.replicas} numbers, one per replica, and not all 0")
        if (total := sum(group.count for group in self.workers)) > WORKERS_MAX:
            raise ValueError(f"there are {total} Workers; a simulation takes at most {WORKERS_MAX}")


def read_plan(path: Path) -> Plan:
    """Return the plan in a YAML or JSON file, or raise BadValue."""
    try:
        text = path.read_text()
    except OSError as error:
        raise BadValue(f"plan {path} cannot be read: {error.strerror or error}") from None
    return plan_of(_parsed(text, path), str(path))


def plan_of(document: Any, where: str) -> Plan:
    try:
        return msgspec.convert(document, Plan)
    except msgspec.ValidationError as error:
        raise BadValue(f"plan {where}: {error}") from None


def _parsed(text: str, path: Path) -> Any:
    import yaml  # Late: only this verb reads YAML. YAML includes JSON.

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadValue(f"plan {path} is not YAML: {' '.join(str(error).split())}") from None


def load_range(group: PlannedWorkers) -> tuple[int, int]:
    return (group.load, group.load) if isinstance(group.load, int) else (group.load[0], group.load[1])


def workload_of(plan: Plan, seed: int) -> Workload:
    """Return the fleet and the creates that the plan gives with this seed."""
    rng = Random(seed)
    pools = {each.pool: Pool(each.pool) for each in plan.workers}
    for each in plan.pools:
        pools[each.name] = Pool(
            each.name,
            priority=each.priority,
            tier_workers_min=each.tier_workers_min,
            tier_divisor=each.tier_divisor,
            tau_slots=each.tau_slots,
        )
    workers: list[SimulatedWorker] = []
    for group in plan.workers:
        for _ in range(group.count):
            load = rng.randint(*load_range(group))
            workers.append(SimulatedWorker(f"w{len(workers):05d}", group.pool, group.capacity, load))
    digital_ids = tuple(
        DigitalID(each.name, tuple(PoolEntry(entry.pool, entry.tier) for entry in each.pools))
        for each in plan.digital_ids
    )
    asked = rng.choices(range(len(digital_ids)), weights=[each.weight for each in plan.digital_ids], k=plan.creates)
    at = rng.choices(range(plan.replicas), weights=plan.replica_weights or None, k=plan.creates)
    return Workload(
        "plan", tuple(pools.values()), tuple(workers), digital_ids, plan.replicas, tuple(zip(at, asked, strict=True))
    )


def cell_counts(plan: Plan) -> tuple[int, ...]:
    """Return the numbers of cells to compare, one big cell first; none if the plan is for a deployment of one cell."""
    given = [plan.cells] if isinstance(plan.cells, int) else plan.cells
    if not given and (plan.fill is not None or plan.worker_cells is not None):
        raise BadValue("fill and worker_cells are for several cells; say how many, with cells in the plan or --cells")
    return tuple(sorted({1, *given})) if given else ()
