"""A choice explains itself from what it recorded, also after the view has moved on."""

from random import Random

import msgspec

from dhsched.placement import Choice, FleetView, PlacementRequest, Pool, Refusal, Snapshot, WorkerRow, choose, explain

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
    assert (gpu.pool, gpu.tier, gpu.waterline, gpu.workers, gpu.with_room) == ("gpu", 0, 17 / 20, 2, 1)
    assert (gpu.bottom_tier, gpu.excluded_counts) == (1, {"believed full": 1, "draining": 1})
    assert [(worker.worker, worker.why) for worker in gpu.excluded] == [("b", "believed full"), ("c", "draining")]
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
