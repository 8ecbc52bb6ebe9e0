"""The buckets of a Pool against a plain sort: same members, same order, same bottom tier, after any changes."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.placement import FleetView, Pool, Snapshot, Weighing, WorkerRow
from dhsched.placement.index import FULL, MILLI, PoolView, WorkerView
from dhsched.placement.workers import bottom_tier, draw, tier_window, tier_workers

CAPACITIES = {"equal": [20], "mixed": [4, 20, 50]}


def naive_key(worker: WorkerView, *, equal: bool) -> int:
    """One slot is one step where capacities are equal; a thousandth of the capacity is where they differ."""
    effective = worker.load * MILLI + worker.delta
    return effective // MILLI if equal else effective // worker.capacity


def naive_tier(workers: list[WorkerView], pool: Pool) -> tuple[set[str], set[str], int]:
    """Those surely in the bottom tier, those among whom chance decides, and the size, by sorting everything."""
    equal = len({worker.capacity for worker in workers}) <= 1
    ranked = sorted((naive_key(w, equal=equal), w.worker) for w in workers if w.load + w.own < w.capacity)
    if not ranked:
        return set(), set(), 0
    k = max(pool.tier_workers_min, len(workers) // pool.tier_divisor)
    mean = sum(w.capacity for w in workers) / len(workers)
    tau = pool.tau_slots if equal else int(pool.tau_slots * MILLI / mean)
    near = [(key, name) for key, name in ranked if key <= ranked[0][0] + tau]
    tier = near[:k]
    edge = tier[-1][0]
    return {name for key, name in tier if key < edge}, {name for key, name in near if key == edge}, len(tier)


def check_index(pool: PoolView, workers: list[WorkerView]) -> None:
    """Every member in exactly the bucket that its numbers say, and the sums true."""
    assert sorted(w.worker for w in pool.members) == sorted(w.worker for w in workers)
    assert (pool.load, pool.capacity) == (sum(w.load for w in workers), sum(w.capacity for w in workers))
    assert pool.delta == sum(w.delta for w in workers)
    equal = len({worker.capacity for worker in workers}) <= 1
    expected: dict[int, set[str]] = {}
    for worker in workers:
        full = worker.load + worker.own >= worker.capacity
        expected.setdefault(FULL if full else naive_key(worker, equal=equal), set()).add(worker.worker)
    assert {key: {w.worker for w in bucket} for key, bucket in pool.buckets.items()} == expected
    assert sum(len(bucket) for bucket in pool.buckets.values()) == len(workers)
    assert pool.keys == sorted(expected)


changes = st.lists(
    st.tuples(
        st.sampled_from(["load", "commit", "correct", "bar", "unbar", "resize", "many"]),
        st.integers(0, 29),
        st.integers(0, 50),
    ),
    max_size=40,
)


@given(
    changes=changes,
    capacities=st.sampled_from(sorted(CAPACITIES)),
    pool=st.builds(
        Pool,
        st.just("gpu"),
        tier_workers_min=st.integers(1, 8),
        tier_divisor=st.integers(1, 8),
        tau_slots=st.integers(0, 12),
    ),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_buckets_equal_a_sort_under_any_changes(
    changes: list[tuple[str, int, int]], capacities: str, pool: Pool, seed: int
) -> None:
    rng = Random(seed)
    rows = [
        WorkerRow(f"w{i}", "gpu", rng.randint(0, 20), rng.choice(CAPACITIES[capacities]))
        for i in range(rng.randint(1, 30))
    ]
    view = FleetView(weighing=Weighing.SHARE, replicas=3, pools=[pool])
    rev = 1
    view.apply(Snapshot(rev, 0, tuple(rows)), now=0)
    for kind, which, number in changes:
        rev += 1
        row = view.workers[rows[which % len(rows)].worker]
        match kind:
            case "commit":
                view.committed(row.worker, rev=rev)
            case "correct":
                view.correct(row.worker, rev=rev, load=number)
            case "many":
                news = [WorkerRow(w.worker, "gpu", number, w.capacity, rev=rev) for w in view.workers.values()]
                view.apply(Snapshot(rev, rev, tuple(news), since=view.rev), now=0)
            case _:
                load = number if kind == "load" else row.load
                capacity = 1 + number if kind == "resize" else row.capacity
                barred = {"bar": "draining", "unbar": ""}.get(kind, row.barred)
                news = [WorkerRow(row.worker, "gpu", load, capacity, barred=barred, rev=rev)]
                view.apply(Snapshot(rev, rev, tuple(news), since=view.rev), now=0)
        placeable = [w for w in view.workers.values() if not w.barred]
        check_index(view.pools["gpu"], placeable)
        check_tier(view.pools["gpu"], placeable, rng)


def check_tier(pool: PoolView, workers: list[WorkerView], rng: Random) -> None:
    sure, chance, size = naive_tier(workers, pool.pool)
    if not pool.has_free_slot():
        assert size == 0 and draw(pool, 3, frozenset(), rng) == []
        return
    tier = bottom_tier(pool)
    assert {w.worker for bucket in tier.buckets[:-1] for w in bucket} == sure
    assert {w.worker for w in tier.buckets[-1]} == chance
    assert (tier.sure, tier.size) == (len(sure), size)
    first = {w.worker for w in draw(pool, size, frozenset(), rng)}
    assert sure <= first <= sure | chance and len(first) == size
    drawn = [w.worker for w in draw(pool, min(3, size), frozenset(), rng)]
    assert len(set(drawn)) == len(drawn) == min(3, size) and set(drawn) <= sure | chance


@given(loads=st.lists(st.integers(0, 25), min_size=1, max_size=40), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_each_worker_drawn_is_in_the_bottom_tier_of_those_not_drawn_yet(loads: list[int], seed: int) -> None:
    view = FleetView(pools=[Pool("gpu")])
    view.apply(Snapshot(1, 0, tuple(WorkerRow(f"w{i}", "gpu", load, 20) for i, load in enumerate(loads))), now=0)
    pool = view.pools["gpu"]
    drawn = draw(pool, len(loads), frozenset(), Random(seed))
    assert sorted(w.worker for w in drawn) == sorted(f"w{i}" for i, load in enumerate(loads) if load < 20)
    for at, worker in enumerate(drawn):
        rest = [w.load for w in drawn[at:]]
        assert worker.load <= min(rest) + tier_window(pool)
        assert sum(load < worker.load for load in rest) < tier_workers(pool)


def test_every_worker_of_the_tier_is_drawn_first_equally_often() -> None:
    """Uniform over the tier, and chance among equals at its edge: 4 surely in, 8 equals for the other 4 ranks."""
    rows = [WorkerRow(f"low{i}", "gpu", 0, 20) for i in range(4)] + [
        WorkerRow(f"edge{i}", "gpu", 1, 20) for i in range(8)
    ]
    view = FleetView(pools=[Pool("gpu")])
    view.apply(Snapshot(1, 0, tuple(rows)), now=0)
    rng = Random(7)
    counts: dict[str, int] = {}
    for _ in range(8_000):
        drawn = draw(view.pools["gpu"], 3, frozenset(), rng)
        assert len({worker.worker for worker in drawn}) == 3
        for worker in drawn:
            counts[worker.worker] = counts.get(worker.worker, 0) + 1
    low = [counts[f"low{i}"] for i in range(4)]
    edge = [counts[f"edge{i}"] for i in range(8)]
    assert all(abs(count - 3_000) < 200 for count in low)  # 3 draws over 8 ranks,
    assert all(abs(count - 1_500) < 150 for count in edge)  # of which 4 are shared by 8.


def test_an_empty_new_worker_leads_and_others_follow() -> None:
    """The tier is the new Worker alone. When its start budget is spent, the next tier's Workers are named too."""
    rows = [WorkerRow(f"w{i}", "gpu", 100 + i % 4, 200) for i in range(50)] + [WorkerRow("new", "gpu", 0, 200)]
    view = FleetView(pools=[Pool("gpu")])
    view.apply(Snapshot(1, 0, tuple(rows)), now=0)
    for seed in range(50):
        first, *others = draw(view.pools["gpu"], 3, frozenset(), Random(seed))
        assert first.worker == "new" and len(others) == 2
