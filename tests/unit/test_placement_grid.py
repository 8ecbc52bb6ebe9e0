"""The default policy is even on every fleet: small and large, fresh and old views, one replica and many.

What it must keep: where capacities are equal, the fullest Worker has at most one live more than the emptiest with a
fresh view, two with an old one; where they differ, shares differ by at most one live of the smallest Worker. No create
fails while an eligible slot is free.
"""

from collections.abc import Sequence
from random import Random

import pytest

from dhsched.placement import DEFAULT_POLICY, DigitalID, Pool, PoolEntry
from dhsched.simulate import Result, SimulatedWorker, Workload, simulate

FRESH = 1
OLD = (1_000, 4_000)
GPU = DigitalID("anna", (PoolEntry("gpu"),))
PICKY = DigitalID("anna", (PoolEntry("gpu"),), preferred_labels=frozenset({"ssd", "a100"}))
FILLED = (0.5, 0.77, 1.0)

SMALL = [(workers, capacity) for workers in (1, 2, 3, 4, 8, 16, 17, 32) for capacity in (1, 2, 4, 8, 32)]
ALL_SMALL = [(workers, capacity) for workers in range(1, 33) for capacity in range(1, 33)]


def run(
    capacities: Sequence[int],
    *,
    creates: int,
    replicas: int,
    every: int,
    labels: Sequence[str] = (),
    digital_id: DigitalID = GPU,
    seed: int = 1,
) -> Result:
    """A burst on one Pool; `labels` are those of each Worker, separated by spaces."""
    rng = Random(seed)
    fleet = tuple(
        SimulatedWorker(f"w{n:04d}", "gpu", capacity, 0, frozenset((labels[n] if labels else "").split()))
        for n, capacity in enumerate(capacities)
    )
    arrivals = tuple((rng.randrange(replicas), 0) for _ in range(creates))
    workload = Workload("grid", (Pool("gpu"),), fleet, (digital_id,), replicas, arrivals)
    return simulate(workload, DEFAULT_POLICY, placements_per_snapshot=every, seed=seed)


def check_equal(
    workers: int, capacity: int, replicas: int, every: int, filled: float, creates_max: int = 16_000
) -> None:
    creates = min(creates_max, max(1, round(workers * capacity * filled)))
    result = run([capacity] * workers, creates=creates, replicas=replicas, every=every)
    where = f"{workers} x {capacity}, {creates} creates, {replicas} replicas, {every} placements per snapshot"
    assert result.failed_creates == 0, where
    assert result.spread <= (1 if every == FRESH else 2), f"{where}: {result.spread}"
    assert result.pool_spreads == {"gpu": result.spread}


@pytest.mark.parametrize("replicas", [1, 32])
@pytest.mark.parametrize("every", [FRESH, *OLD])
def test_equal_workers_are_even(replicas: int, every: int) -> None:
    for workers, capacity in SMALL:
        for filled in FILLED[1:] if workers * capacity > 256 else FILLED:
            check_equal(workers, capacity, replicas, every, filled)


@pytest.mark.parametrize(("workers", "capacity"), [(128, 206), (1_000, 64)])
def test_equal_workers_are_even_in_large_pools(workers: int, capacity: int) -> None:
    for replicas, every in ((1, FRESH), (32, 1_000), (32, 4_000)):
        check_equal(workers, capacity, replicas, every, 1.0, creates_max=4_000)


@pytest.mark.parametrize("every", [FRESH, *OLD])
def test_unequal_workers_are_filled_alike(every: int) -> None:
    for workers in (2, 3, 8, 16, 17, 32):
        for seed in (1, 2):
            capacities = [Random(seed).randint(1, 32) for _ in range(workers)]
            creates = round(sum(capacities) * 0.8)
            result = run(capacities, creates=creates, replicas=4, every=every, seed=seed)
            assert result.failed_creates == 0
            assert result.utilisation_spread <= 1 / min(capacities) + 1e-9, (capacities, creates)


def test_unequal_large_workers_are_filled_alike() -> None:
    capacities = [Random(1).choice((103, 206, 412)) for _ in range(128)]
    result = run(capacities, creates=8_000, replicas=4, every=FRESH)
    assert result.utilisation_spread <= 1 / 103


@pytest.mark.parametrize("every", [FRESH, *OLD])
@pytest.mark.parametrize(("workers", "labelled"), [(8, 3), (32, 9), (128, 40)])
def test_the_workers_that_share_the_best_label_are_even(workers: int, labelled: int, every: int) -> None:
    """They are taken as long as they have a free slot; then the others, and nothing fails."""
    best = [n % (workers // labelled) == 0 and n // (workers // labelled) < labelled for n in range(workers)]
    labels = ["ssd a100" if each else "ssd" if n % 2 else "" for n, each in enumerate(best)]
    capacity, assigned = 8, [n for n, each in enumerate(best) if each]
    for creates in (labelled * 3 + 1, labelled * capacity, workers * capacity):
        result = run([capacity] * workers, creates=creates, replicas=4, every=every, labels=labels, digital_id=PICKY)
        loads = [*result.loads.values()]
        theirs = [loads[n] for n in assigned]
        assert result.failed_creates == 0
        assert max(theirs) - min(theirs) <= (1 if every == FRESH else 2)
        if every == FRESH:
            assert sum(theirs) == min(creates, labelled * capacity), "the label is kept while there is a free slot"


@pytest.mark.long
@pytest.mark.parametrize("replicas", [1, 2, 8, 32])
@pytest.mark.parametrize("every", [FRESH, 8, 64, 250, *OLD])
def test_the_whole_grid(replicas: int, every: int) -> None:
    for workers, capacity in ALL_SMALL:
        for filled in FILLED:
            check_equal(workers, capacity, replicas, every, filled)
    check_equal(128, 206, replicas, every, 0.6)
    check_equal(1_000, 64, replicas, every, 0.25)
