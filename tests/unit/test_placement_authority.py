"""A view that is stale or plainly wrong costs attempts: it never overfills a Worker nor turns a free slot into FULL."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.placement import (
    POLICIES,
    Choice,
    PlacementRequest,
    Policy,
    Pool,
    Snapshot,
    WorkerRow,
    choose,
    view_for,
)


class Authority:
    """Slots as the store keeps them: the first candidate with a free slot, else the emptiest of the named Pools."""

    def __init__(self, slots: dict[str, tuple[str, int]]) -> None:
        self.slots = slots  # Worker -> (Pool, capacity)
        self.loads = dict.fromkeys(slots, 0)
        self.rev = 0

    def place(self, candidates: tuple[str, ...], pools: tuple[str, ...]) -> tuple[str | None, list[str]]:
        refused: list[str] = []
        for worker in candidates:
            if worker in self.slots and self.loads[worker] < self.slots[worker][1]:
                return self._take(worker), refused
            refused.append(worker)
        for pool in pools:
            room = [w for w, (home, capacity) in self.slots.items() if home == pool and self.loads[w] < capacity]
            if room:
                return self._take(min(room, key=lambda w: self.loads[w] / self.slots[w][1])), refused
        return None, refused

    def _take(self, worker: str) -> str:
        self.loads[worker] += 1
        self.rev += 1
        return worker

    def free(self, pools: list[str]) -> int:
        return sum(capacity - self.loads[w] for w, (pool, capacity) in self.slots.items() if pool in pools)


POOLS = ["p0", "p1"]
truths = st.dictionaries(
    st.integers(0, 19).map(lambda n: f"w{n}"), st.tuples(st.sampled_from(POOLS), st.integers(0, 5)), max_size=12
)
lies = st.lists(
    st.builds(
        WorkerRow,
        worker=st.integers(0, 25).map(lambda n: f"w{n}"),
        pool=st.sampled_from([*POOLS, "p2"]),
        load=st.integers(0, 9),
        capacity=st.integers(0, 9),
        barred=st.sampled_from(["", "", "lost"]),
    ),
    max_size=20,
    unique_by=lambda row: row.worker,
)


@given(
    truth=truths,
    believed=st.lists(lies, min_size=1, max_size=3),
    policy=st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__),
    last=st.none() | st.integers(0, 19).map(lambda n: f"w{n}"),
    seed=st.integers(),
)
@settings(max_examples=250, deadline=None)
def test_any_view_fills_the_fleet_exactly(
    truth: dict[str, tuple[str, int]], believed: list[list[WorkerRow]], policy: Policy, last: str | None, seed: int
) -> None:
    """Several replicas, each with lies of its own, until the store says FULL: by then every slot is taken."""
    authority = Authority(truth)
    views = []
    for rows in believed:
        view = view_for(policy, replicas=len(believed))
        view.configure([Pool(name) for name in POOLS])
        view.apply(Snapshot(0, 0, tuple(rows)), now=0)
        views.append(view)
    rng = Random(seed)
    request = PlacementRequest("anna", (("p0", 0), ("p1", 1)), last=last)
    slots = authority.free(POOLS)
    for number in range(slots + 3):
        view = views[number % len(views)]
        choice = choose(view, request, rng=rng, now=0, policy=policy)
        assert isinstance(choice, Choice)
        winner, refused = authority.place(choice.candidates, choice.pools)
        assert (winner is None) == (number >= slots)
        assert all(authority.loads[worker] <= capacity for worker, (_, capacity) in truth.items())
        for worker in refused:
            gone = None if worker in truth else "gone"
            view.correct(worker, rev=authority.rev, load=authority.loads.get(worker), barred=gone)
        if winner is not None:
            view.committed(winner, rev=authority.rev)
