"""Workloads of the placement experiments (paper, 8.1): every policy gets the same fleet and the same creates.

The docstrings say which numbers are not in the paper.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

from dhsched.placement import DigitalID, Pool, PoolEntry
from dhsched.simulate import SimulatedWorker, Workload

FLEXIBLE_POOLS_MIN = 7  # A DigitalID with this many Pools takes part in the flexible traffic.
FLEXIBLE_SHARE = 0.2  # Share of the creates that is flexible.


def burst(
    seed: int,
    *,
    workers: int = 128,
    replicas: int = 16,
    creates: int = 16_000,
    capacity: int = 206,
    load_max: int = 8,
    replica_weights: Sequence[float] | None = None,
) -> Workload:
    """Return one Pool of equal Workers and a burst of creates, spread over the replicas evenly or by weight.

    Capacity and initial load are not in the paper; 206 and 0 to 8 agree with the spread it reports for Strict-Min.
    """
    rng = Random(seed)
    fleet = tuple(SimulatedWorker(f"w{i:05d}", "gpu", capacity, rng.randint(0, load_max)) for i in range(workers))
    at = rng.choices(range(replicas), weights=replica_weights, k=creates)
    return Workload(
        name="burst",
        pools=(Pool("gpu"),),
        workers=fleet,
        digital_ids=(DigitalID("anna", (PoolEntry("gpu"),)),),
        replicas=replicas,
        arrivals=tuple((replica, 0) for replica in at),
    )


def hierarchy(
    seed: int,
    *,
    workers: int = 128,
    replicas: int = 16,
    creates: int = 16_000,
    fill: float = 0.9,
) -> Workload:
    """Return eight unequal Pools, and creates for twelve DigitalIDs that are eligible for two to eight of them.

    Of the creates, 80 % follow the free capacity of each DigitalID's preferred tier. The rest is flexible: it goes to
    the DigitalIDs with most Pools, however few free slots their preferred tier has. Not in the paper: sizes and
    capacities of the Pools, which DigitalID prefers which Pool, the meaning of flexible, and the share of slots that is
    taken in the end (`fill`).
    All Pools have one priority and `fill` is 0.9 because then `exact` completes the burst: narrow DigitalIDs ran out
    of Pools in other settings, whatever the policy. So compare policies here; the levels are not the paper's.
    """
    rng = Random(seed)
    pools = tuple(Pool(f"pool-{i}") for i in range(8))
    fleet = _unequal_fleet(pools, workers, creates, fill, rng)
    digital_ids = tuple(_digital_id(i, pools, rng) for i in range(12))
    demand = _free_capacity_demand(fleet, digital_ids)
    flexible = [index for index, each in enumerate(digital_ids) if len(each.pools) >= FLEXIBLE_POOLS_MIN]
    arrivals = []
    for _ in range(creates):
        if rng.random() < FLEXIBLE_SHARE:
            digital_id = rng.choice(flexible)
        else:
            (digital_id,) = rng.choices(range(len(digital_ids)), weights=demand)
        arrivals.append((rng.randrange(replicas), digital_id))
    return Workload("hierarchy", pools, fleet, digital_ids, replicas, tuple(arrivals))


def _unequal_fleet(
    pools: tuple[Pool, ...], workers: int, creates: int, fill: float, rng: Random
) -> tuple[SimulatedWorker, ...]:
    """Return Workers in Pools of different sizes; capacities differ by GPU class and a little within a Pool."""
    sizes = [rng.randint(2, 6) for _ in pools]
    classes = [rng.choice((0.5, 1.0, 1.5, 2.0)) for _ in pools]
    homes = rng.choices(range(len(pools)), weights=sizes, k=workers)
    shapes = [classes[home] * rng.uniform(0.8, 1.2) for home in homes]
    slots = creates / fill
    capacities = [max(4, round(slots * shape / sum(shapes))) for shape in shapes]
    return tuple(
        SimulatedWorker(f"w{i:05d}", pools[home].name, capacity, rng.randint(0, capacity // 25))
        for i, (home, capacity) in enumerate(zip(homes, capacities, strict=True))
    )


def _digital_id(index: int, pools: tuple[Pool, ...], rng: Random) -> DigitalID:
    """Return a DigitalID eligible for two to eight Pools, of which one or two are preferred and the others tier 1."""
    home = pools[index % len(pools)].name  # So that every Pool is preferred by some DigitalID.
    others = [pool.name for pool in pools if pool.name != home]
    names = [home, *rng.sample(others, 1 + index % len(others))]
    preferred = 1 if len(names) == 2 else rng.randint(1, 2)
    entries = tuple(PoolEntry(name, 0 if place < preferred else 1) for place, name in enumerate(names))
    return DigitalID(f"digital-{index}", entries)


def _free_capacity_demand(fleet: tuple[SimulatedWorker, ...], digital_ids: tuple[DigitalID, ...]) -> list[float]:
    """Return each DigitalID's demand: the free slots of its preferred Pools, shared with others that prefer them."""
    free: Counter[str] = Counter()
    for worker in fleet:
        free[worker.pool] += worker.capacity - worker.load
    preferred = [[entry.pool for entry in each.pools if entry.tier == 0] for each in digital_ids]
    asking = Counter(pool for names in preferred for pool in names)
    return [sum(free[pool] / asking[pool] for pool in names) for names in preferred]
