"""Candidates are eligible, distinct, in order, few enough and the same for the same chance, under every policy."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.placement import (
    POLICIES,
    Choice,
    DigitalID,
    FleetView,
    NoEligiblePool,
    PlacementRequest,
    Policy,
    Pool,
    PoolEntry,
    Snapshot,
    Weighing,
    WorkerRow,
    choose,
    request_for,
    view_for,
)
from dhsched.placement.policies import prefers
from dhsched.types import Equals

POOLS = ("p0", "p1", "p2")
LABELS = ("ssd", "quiet")
policies = st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__)
label_sets = st.frozensets(st.sampled_from(LABELS))
rows = st.builds(
    WorkerRow,
    worker=st.integers(0, 99).map(lambda n: f"w{n}"),
    pool=st.sampled_from(POOLS),
    load=st.integers(0, 12),
    capacity=st.sampled_from([0, 4, 10]),
    barred=st.sampled_from(["", "", "", "draining"]),
    labels=label_sets,
)
fleets = st.lists(rows, max_size=30, unique_by=lambda row: row.worker)
workers = st.integers(0, 99).map(lambda n: f"w{n}")
requests = st.builds(
    PlacementRequest,
    digital_id=st.just("anna"),
    pools=st.lists(
        st.tuples(st.sampled_from(POOLS), st.integers(0, 2)), min_size=1, max_size=3, unique_by=lambda entry: entry[0]
    ).map(tuple),
    required_labels=st.sampled_from([frozenset(), frozenset({"region=eu"})]),
    preferred_labels=label_sets,
    avoid=st.frozensets(workers, max_size=4),
    last=st.none() | workers,
    first=st.none() | workers,
    candidates_max=st.none() | st.integers(1, 16),
)
SETTINGS = (Pool("p0", region="eu"), Pool("p1", region="eu", priority=1), Pool("p2", region="us", candidates_max=2))


def make_view(policy: Policy, fleet: list[WorkerRow], commits: list[str]) -> FleetView:
    view = view_for(policy, replicas=8)
    view.configure(SETTINGS)
    view.apply(Snapshot(1, 0, tuple(fleet)), now=0)
    for number, worker in enumerate(commits):
        view.committed(worker, rev=2 + number)
    return view


def order_of(view: FleetView, request: PlacementRequest) -> list[str]:
    """Eligible Pools by the words of the design: tier, priority, waterline over placeable Workers."""

    def waterline(pool: str) -> float:
        members = [w for w in view.workers.values() if w.pool == pool and not w.barred]
        capacity = sum(w.capacity for w in members)
        return sum(w.load + w.delta / 1000 for w in members) / capacity if capacity else 1.0

    configured = {pool.name: pool for pool in SETTINGS}
    eligible = [(p, tier) for p, tier in request.pools if request.required_labels <= configured[p].offers()]
    return [p for p, _ in sorted(eligible, key=lambda e: (e[1], configured[e[0]].priority, waterline(e[0]), e[0]))]


@given(policies, fleets, st.lists(workers, max_size=20), requests, st.integers())
@settings(max_examples=250, deadline=None)
def test_what_every_choice_keeps(
    policy: Policy, fleet: list[WorkerRow], commits: list[str], request: PlacementRequest, seed: int
) -> None:
    view = make_view(policy, fleet, commits)
    pools = order_of(view, request)
    choice = choose(view, request, rng=Random(seed), now=5.0, policy=policy)
    if isinstance(choice, NoEligiblePool):
        assert pools == [] and "anna" in choice.reason
        return
    assert list(choice.pools) == pools  # All eligible Pools, whatever the view believes about their Workers.
    rooms = {row.worker: row for row in fleet if row.pool in pools and not row.barred}
    assert set(choice.candidates) <= set(rooms)
    assert len(set(choice.candidates)) == len(choice.candidates)
    configured = next(pool.candidates_max for pool in SETTINGS if pool.name == pools[0])
    limit = request.candidates_max or configured or policy.candidates
    assert len(choice.candidates) <= limit
    named = [name for rank in choice.ranks for name in (rank.workers if isinstance(rank, Equals) else (rank,))]
    assert tuple(named) == choice.candidates
    if policy.name not in ("exact", "emptiest") or (policy.name == "emptiest" and prefers(request)):
        assert len(choice.candidates) == min(limit, len(rooms))
    check_asked_order(choice, request, rooms)
    again = choose(make_view(policy, fleet, commits), request, rng=Random(seed), now=5.0, policy=policy)
    assert isinstance(again, Choice) and (again.candidates, again.pools) == (choice.candidates, choice.pools)


def check_asked_order(choice: Choice, request: PlacementRequest, rooms: dict[str, WorkerRow]) -> None:
    if request.first in rooms:
        assert choice.candidates[0] == request.first
    rest = [worker for worker in choice.candidates if worker != request.first]
    lateness = [(worker in request.avoid or worker == request.last) + (worker == request.last) for worker in rest]
    assert lateness == sorted(lateness)
    named = [worker for worker in rooms if worker not in request.avoid and worker not in (request.last, request.first)]
    if any(lateness):  # Somebody to be avoided is named only when all the others are.
        assert set(named) <= set(rest)


@given(fleets, st.lists(workers, max_size=20), requests, st.integers())
@settings(max_examples=200, deadline=None)
def test_bottom_tier_tries_pools_in_order_and_full_workers_after_all_with_free_slot(
    fleet: list[WorkerRow], commits: list[str], request: PlacementRequest, seed: int
) -> None:
    policy = POLICIES["bottom-tier"]
    view = make_view(policy, fleet, commits)
    choice = choose(view, request, rng=Random(seed), now=0, policy=policy)
    if isinstance(choice, NoEligiblePool):
        return
    special = {*request.avoid, request.last, request.first}
    order = [
        (view.workers[worker].believed_full(), choice.pools.index(view.workers[worker].pool))
        for worker in choice.candidates
        if worker not in special
    ]
    assert order == sorted(order)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.lists(st.integers(0, 11), max_size=60), st.integers())
@settings(max_examples=200, deadline=None)
def test_weighted_deltas_rank_and_never_exclude(loads: list[int], commits: list[int], seed: int) -> None:
    """Only slots known to be taken make a Worker count as full, however heavy an own assignment weighs."""
    view = FleetView(weighing=Weighing.SHARE, replicas=64, pools=[Pool("p0")])
    view.apply(Snapshot(1, 0, tuple(WorkerRow(f"w{i}", "p0", load, 10) for i, load in enumerate(loads))), now=0)
    taken = dict(enumerate(loads))
    for number, at in enumerate(commits):
        taken[at % len(loads)] += 1
        view.committed(f"w{at % len(loads)}", rev=2 + number)
    request = PlacementRequest("anna", (("p0", 0),), candidates_max=16)
    choice = choose(view, request, rng=Random(seed), now=0, policy=POLICIES["bottom-tier"])
    assert isinstance(choice, Choice)
    assert len(choice.candidates) == len(loads)
    with_free_slot = {f"w{i}" for i, load in taken.items() if load < 10}
    assert set(choice.candidates[: len(with_free_slot)]) == with_free_slot


def single_pool(*fleet: WorkerRow, policy: str = "bottom-tier") -> FleetView:
    view = view_for(POLICIES[policy], replicas=16)
    view.configure([Pool("p0")])
    view.apply(Snapshot(1, 0, fleet), now=0)
    return view


def candidates(view: FleetView, request: PlacementRequest, *, policy: str = "bottom-tier", seed: int = 0) -> list[str]:
    choice = choose(view, request, rng=Random(seed), now=0, policy=POLICIES[policy])
    assert isinstance(choice, Choice)
    return list(choice.candidates)


ANNA = PlacementRequest("anna", (("p0", 0),))


def test_preferred_labels_lead_within_the_tier_and_never_reach_above_it() -> None:
    fleet = [WorkerRow(f"plain{i}", "p0", 0, 50) for i in range(6)]
    fleet += [WorkerRow("both", "p0", 3, 50, labels=frozenset({"ssd", "quiet"}))]
    fleet += [WorkerRow("one", "p0", 5, 50, labels=frozenset({"ssd"}))]
    fleet += [WorkerRow("high", "p0", 20, 50, labels=frozenset({"ssd", "quiet"}))]
    request = PlacementRequest("anna", (("p0", 0),), preferred_labels=frozenset({"ssd", "quiet"}), candidates_max=9)
    for seed in range(30):
        order = candidates(single_pool(*fleet), request, seed=seed)
        assert order[:2] == ["both", "one"] and order[-1] == "high" and len(set(order)) == 9


def test_an_own_assignment_weighs_as_much_as_the_policy_says() -> None:
    for policy, weight in (
        ("bottom-tier", 16),
        ("bottom-tier-paper", 1),
        ("bottom-tier-replicas", 16),
        ("strict-min", 0),
    ):
        view = single_pool(WorkerRow("a", "p0", 0, 50), WorkerRow("b", "p0", 0, 50), policy=policy)
        view.committed("a", rev=2)
        assert view.workers["a"].delta == weight * 1000


def test_orleans_code_counts_at_selection_until_the_worker_is_heard_of() -> None:
    view = single_pool(*(WorkerRow(f"w{i}", "p0", 0, 50) for i in range(20)), policy="orleans-ac-code")
    chosen, *_ = candidates(view, ANNA, policy="orleans-ac-code")
    view.committed(chosen, rev=2)
    assert (view.workers[chosen].own, view.workers[chosen].delta) == (0, 16_000)
    view.correct(chosen, rev=2, load=1)
    assert view.workers[chosen].delta == 0


def test_strict_min_herds_and_least_load_looks_at_shares_in_all_pools() -> None:
    view = single_pool(WorkerRow("a", "p0", 2, 50), WorkerRow("b", "p0", 1, 50), policy="strict-min")
    view.committed("b", rev=2)
    view.committed("b", rev=3)
    assert candidates(view, ANNA, policy="strict-min") == ["b", "a"]
    view = single_pool(
        WorkerRow("small", "p0", 1, 2),
        WorkerRow("large", "p1", 10, 100),
        WorkerRow("mid", "p0", 1, 5),
        policy="least-load",
    )
    request = PlacementRequest("anna", (("p0", 0), ("p1", 3)))
    assert candidates(view, request, policy="least-load") == ["large", "mid", "small"]


@pytest.mark.parametrize("policy", ["strict-min", "power-of-two"])
def test_the_chosen_pool_of_a_baseline_is_the_first_that_is_not_full(policy: str) -> None:
    full = [WorkerRow(f"w{i}", "p0", 50, 50) for i in range(20)]
    view = single_pool(*full, *(WorkerRow(f"v{i}", "p1", 9, 50) for i in range(20)), policy=policy)
    request = PlacementRequest("anna", (("p0", 0), ("p1", 1)))
    assert all(worker.startswith("v") for worker in candidates(view, request, policy=policy))


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"exact"}))
def test_first_leads_avoided_ones_follow_all_others_and_last_ends(policy: str) -> None:
    """The one asked for first is full: the live may hold a slot there, which only the store can tell."""
    fleet = [WorkerRow(name, "p0", load, 50) for name, load in (("a", 0), ("b", 1), ("c", 2), ("d", 3), ("e", 50))]
    request = PlacementRequest("anna", (("p0", 0),), avoid=frozenset({"b", "c"}), last="a", first="e", candidates_max=5)
    for seed in range(10):
        order = candidates(single_pool(*fleet, policy=policy), request, policy=policy, seed=seed)
        assert order[:2] == ["e", "d"] and set(order[2:4]) == {"b", "c"} and order[4] == "a"


def test_orleans_priority_keeps_to_the_best_pools_and_one_attempt_for_any() -> None:
    fleet = [WorkerRow(f"w{i}", "p0", 0, 50) for i in range(20)] + [WorkerRow(f"v{i}", "p1", 0, 50) for i in range(20)]
    view = single_pool(*fleet, policy="orleans-ac-priority")
    request = PlacementRequest("anna", (("p1", 1), ("p0", 0)))
    drawn = [candidates(view, request, policy="orleans-ac-priority", seed=seed) for seed in range(40)]
    assert all(order[0][0] == order[1][0] == "w" for order in drawn)
    assert {order[2][0] for order in drawn} == {"w", "v"}


def test_pools_with_equal_tier_and_priority_are_ordered_by_waterline() -> None:
    """40 of 100 slots is lower than 5 of 10: shares count, not lives; and own assignments count at once."""
    view = single_pool(WorkerRow("a", "p0", 5, 10), WorkerRow("b", "p1", 40, 100), policy="bottom-tier-paper")
    request = PlacementRequest("anna", (("p0", 0), ("p1", 0)))
    assert candidates(view, request, policy="bottom-tier-paper") == ["b", "a"]
    for rev in range(2, 13):
        view.committed("b", rev=rev)
    assert candidates(view, request, policy="bottom-tier-paper") == ["a", "b"]


def test_a_full_preferred_pool_stays_first_in_the_order_but_names_no_first_candidate() -> None:
    view = single_pool(WorkerRow("a", "p0", 10, 10), WorkerRow("b", "p1", 9, 10))
    choice = choose(view, PlacementRequest("anna", (("p0", 0), ("p1", 1))), rng=Random(0), now=0)
    assert isinstance(choice, Choice)
    assert (choice.candidates, choice.pools) == (("b",), ("p0", "p1"))


def test_a_pool_may_have_a_policy_of_its_own() -> None:
    """Who stands equal is compared by the store; the bottom tier's candidates are asked one by one."""
    rows = [WorkerRow(f"w{n}", "p0", 0, 10, labels=frozenset({"ssd"} if n < 2 else ())) for n in range(5)]
    request = PlacementRequest("anna", (("p0", 0),), preferred_labels=frozenset({"ssd"}), last="w4")
    view = single_pool(*rows, policy="emptiest")
    choice = choose(view, request, rng=Random(0), now=0)
    assert isinstance(choice, Choice) and choice.why.policy == "emptiest"
    best, others, last = choice.ranks
    assert isinstance(best, Equals) and isinstance(others, Equals)
    assert (best.pool, {*best.workers}, {*others.workers}, last) == ("p0", {"w0", "w1"}, {"w2", "w3"}, "w4")
    assert choice.without("w0", "w4") == [Equals("p0", ("w1",)), others]
    view.configure([Pool("p0", policy="bottom-tier")])
    choice = choose(view, request, rng=Random(0), now=0)
    assert isinstance(choice, Choice) and choice.why.policy == "bottom-tier"
    assert choice.ranks == choice.candidates and len(choice.candidates) == 3


def test_no_eligible_pool_says_why() -> None:
    view = single_pool(WorkerRow("a", "p0", 0, 10))
    none = choose(view, PlacementRequest("anna", ()), rng=Random(0), now=0)
    assert none == NoEligiblePool("DigitalID anna has no eligible Pool: it lists no Pool")
    unmet = choose(
        view, PlacementRequest("anna", (("p0", 0),), required_labels=frozenset({"region=eu"})), rng=Random(0), now=0
    )
    assert isinstance(unmet, NoEligiblePool)
    assert unmet.reason == "DigitalID anna has no eligible Pool: p0 lacks required labels: region=eu"


def test_a_pool_not_heard_of_yet_is_named_all_the_same() -> None:
    choice = choose(FleetView(), ANNA, rng=Random(0), now=0)
    assert isinstance(choice, Choice) and (choice.candidates, choice.pools) == ((), ("p0",))


def test_configuration_is_checked_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="candidates_max is 17"):
        Pool("p0", candidates_max=17)
    with pytest.raises(ValueError, match="tier_divisor 0"):
        Pool("p0", tier_divisor=0)
    with pytest.raises(ValueError, match="needs a name"):
        Pool("")
    with pytest.raises(ValueError, match="lists a Pool twice"):
        DigitalID("anna", (PoolEntry("p0"), PoolEntry("p0", 1)))
    with pytest.raises(ValueError, match="tiers start at 0"):
        DigitalID("anna", (PoolEntry("p0", -1),))
    with pytest.raises(ValueError, match="names a Pool twice"):
        PlacementRequest("anna", (("p0", 0), ("p0", 1)))
    with pytest.raises(ValueError, match="candidates_max is 0"):
        PlacementRequest("anna", (("p0", 0),), candidates_max=0)


def test_a_request_follows_the_digital_id() -> None:
    anna = DigitalID("anna", (PoolEntry("p0"), PoolEntry("p1", 2)), required_labels=frozenset({"region=eu"}))
    assert request_for(anna) == PlacementRequest(
        "anna", (("p0", 0), ("p1", 2)), required_labels=frozenset({"region=eu"})
    )
