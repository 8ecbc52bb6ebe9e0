"""A choice explains itself from what it recorded, also after the view has moved on."""

from random import Random

import msgspec

from dhsched.placement import (
    Choice,
    FleetView,
    PlacementRequest,
    Pool,
    Refusal,
    Snapshot,
    Won,
    WorkerRow,
    choose,
    explain,
)

ROWS = (
    WorkerRow("a", "gpu", 3, 10, starting=1),
    WorkerRow("b", "gpu", 10, 10),
    WorkerRow("c", "gpu", 0, 10, barred="draining"),
    WorkerRow("d", "spare", 0, 10),
)
REQUEST = PlacementRequest(
    "anna", (("gpu", 0), ("spare", 1), ("us", 0)), required_labels=frozenset({"region=eu"}), last="d"
)


def make() -> tuple[FleetView, Choice]:
    view = FleetView(replicas=4, pools=[Pool("gpu", region="eu"), Pool("spare", region="eu"), Pool("us", region="us")])
    view.apply(Snapshot(7, 0, ROWS), now=100.0)
    view.committed("a", rev=8)
    choice = choose(view, REQUEST, rng=Random(1), now=100.4)
    assert isinstance(choice, Choice)
    return view, choice


def test_pools_workers_scores_age_and_refusals() -> None:
    view, choice = make()
    assert choice.candidates == ("a", "b", "d")
    told = explain(choice, view=view, refusals=[Refusal("a", "FULL", load=10)])
    assert (told.digital_id, told.policy, told.rev, told.view_rev, told.weight) == ("anna", "emptiest", 7, 7, 4.0)
    assert told.snapshot_age_s is not None and abs(told.snapshot_age_s - 0.4) < 1e-9
    gpu, spare = told.pools
    assert (gpu.pool, gpu.tier, gpu.waterline, gpu.workers, gpu.with_free_slot) == ("gpu", 0, 17 / 20, 2, 1)
    assert (gpu.bottom_tier, gpu.excluded_counts) == (1, {"believed full": 1, "draining": 1})
    assert [(worker.worker, worker.reason) for worker in gpu.excluded] == [("b", "believed full"), ("c", "draining")]
    assert (spare.pool, spare.tier) == ("spare", 1)
    assert told.pools_excluded == {"us": "lacks required labels: region=eu"}
    a, b, d = told.candidates
    assert (a.load, a.own, a.score, a.capacity, a.starting, a.notes) == (3, 1, 7.0, 10, 1, ())
    assert (b.notes, d.notes) == (("believed full",), ("asked to be last",))
    assert told.refusals == (Refusal("a", "FULL", load=10),)
    assert msgspec.json.decode(msgspec.json.encode(told))["candidates"][0]["worker"] == "a"


def test_the_record_does_not_change_with_the_view() -> None:
    view, choice = make()
    before = explain(choice)
    view.apply(Snapshot(20, 9, (WorkerRow("a", "gpu", 9, 10, rev=19),)), now=101.0)
    view.configure([])
    assert explain(choice) == before


def test_without_the_view_only_what_was_recorded_is_told() -> None:
    _, choice = make()
    told = explain(choice)
    assert told.view_rev is None and told.pools[0].bottom_tier is None and told.pools[0].excluded == ()


def test_before_the_first_snapshot_there_is_no_age() -> None:
    choice = choose(FleetView(), PlacementRequest("anna", (("gpu", 0),)), rng=Random(0), now=1.0)
    assert isinstance(choice, Choice) and explain(choice).snapshot_age_s is None


def test_the_winner_comes_with_the_numbers_that_decided() -> None:
    view, choice = make()
    told = explain(choice, view=view, refusals=[Refusal("a", "FULL", load=10)], won=Won("d", load=1))
    assert told.chosen is not None
    assert (told.chosen.worker, told.chosen.pool, told.chosen.rank, told.chosen.of) == ("d", "spare", 3, 3)
    assert (told.chosen.load_before, told.chosen.load_after, told.chosen.capacity) == (0, 1, 10)
    assert told.chosen.reason == "the lowest load share of 3 candidates, 1 of which refused"
    assert [each.result for each in told.candidates] == ["refused: FULL at 10/10", "higher load share: 10/10", "chosen"]


def test_a_winner_that_is_not_the_lowest_is_told_by_its_rank() -> None:
    """The view may be wrong about the others: what it believed is said, not what must have been."""
    view, choice = make()
    chosen = explain(choice, won=Won("b", load=10)).chosen
    assert chosen is not None and chosen.reason == "number 2 of 3 candidates in the order of emptiest"
    back = explain(choice, won=Won("b", load=10, took_slot=False)).chosen
    assert back is not None and (back.load_before, back.load_after) == (10, 10)
    found = explain(choice, view=view, won=Won("c", load=4)).chosen
    assert found is not None and (found.rank, found.capacity, found.load_before) == (None, 10, 3)
    assert found.reason == "none of 3 candidates could take it; the store found a free slot in Pool gpu"
    unknown = explain(choice, won=Won("new", load=1)).chosen
    assert unknown is not None and unknown.capacity is None and unknown.pool is None


def test_a_tie_is_a_tie() -> None:
    view = FleetView(pools=[Pool("gpu")])
    view.apply(Snapshot(7, 0, tuple(WorkerRow(name, "gpu", 1, 4) for name in "abc")), now=100.0)
    choice = choose(view, PlacementRequest("anna", (("gpu", 0),)), rng=Random(1), now=100.0)
    assert isinstance(choice, Choice)
    told = explain(choice, won=Won(choice.candidates[0], load=2))
    assert told.chosen is not None
    assert told.chosen.reason == "the lowest load share of 3 candidates; 2 others were as low"
    assert [each.result for each in told.candidates] == ["chosen", *2 * ["same load share: 1/4"]]
