"""Rebasing is exact: whatever the order of replies, snapshots and corrections, the view adds up to the ledger."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dhsched.placement import FleetView, Pool, Refreshed, Snapshot, Weighing, WorkerRow
from dhsched.placement.share import CLIP_REPLICAS, ShareWeight

names = st.sampled_from(["a", "b"])
any_of = st.integers(0, 1 << 16)


class Ledger(RuleBasedStateMachine):
    """The cell as it is, a replica's view of it, and messages between them that may be late and out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.view = FleetView(weighing=Weighing.SHARE, replicas=4, pools=[Pool("gpu")])
        self.rev = 0
        self.changes: list[tuple[int, str, int]] = []  # (rev, Worker, change of load)
        self.born: dict[str, int] = {}
        self.died: dict[str, int] = {}
        self.replies: list[tuple[str, int]] = []
        self.heard: list[tuple[str, int]] = []  # Own commits whose reply has arrived.
        self.snapshots: list[Snapshot] = []
        self.corrections: list[tuple[str, int, int]] = []

    def load_at(self, worker: str, rev: int) -> int:
        return sum(change for at, name, change in self.changes if name == worker and at <= rev)

    def alive(self, worker: str) -> bool:
        return worker in self.born and worker not in self.died

    def change(self, worker: str, change: int) -> None:
        self.rev += 1
        self.changes.append((self.rev, worker, change))

    def row(self, worker: str) -> WorkerRow:
        last = max((at for at, name, _ in self.changes if name == worker), default=self.born[worker])
        return WorkerRow(worker, "gpu", self.load_at(worker, self.rev), 6, rev=last)

    @rule(worker=names)
    def register(self, worker: str) -> None:
        if worker not in self.born:
            self.rev += 1
            self.born[worker] = self.rev

    @rule(worker=names)
    def own_commit(self, worker: str) -> None:
        if self.alive(worker):
            self.change(worker, +1)
            self.replies.append((worker, self.rev))

    @rule(worker=names)
    def commit_by_another_replica(self, worker: str) -> None:
        if self.alive(worker):
            self.change(worker, +1)

    @rule(worker=names)
    def departure(self, worker: str) -> None:
        if self.alive(worker) and self.load_at(worker, self.rev):
            self.change(worker, -1)

    @rule(worker=names)
    def worker_goes(self, worker: str) -> None:
        if self.alive(worker) and not self.load_at(worker, self.rev):
            self.rev += 1
            self.died[worker] = self.rev

    @rule(full=st.booleans())
    def read_snapshot(self, full: bool) -> None:
        since = None if full or self.view.rev < 0 else self.view.rev
        rows = [self.row(worker) for worker in self.born if worker not in self.died]
        changed = tuple(row for row in rows if since is None or row.rev > since)
        self.snapshots.append(Snapshot(self.rev, len(self.changes), changed, since))

    @rule(worker=names)
    def read_true_load(self, worker: str) -> None:
        if self.alive(worker):
            self.corrections.append((worker, self.rev, self.load_at(worker, self.rev)))

    @precondition(lambda self: bool(self.replies))
    @rule(which=any_of, again=st.booleans())
    def hear_reply(self, which: int, again: bool) -> None:
        worker, rev = self.replies[which % len(self.replies)]
        if not again:  # A reply that is repeated must not count twice.
            self.replies.remove((worker, rev))
        self.view.committed(worker, rev=rev)
        if (worker, rev) not in self.heard:
            self.heard.append((worker, rev))

    @precondition(lambda self: bool(self.snapshots))
    @rule(which=any_of)
    def hear_snapshot(self, which: int) -> None:
        snapshot = self.snapshots.pop(which % len(self.snapshots))
        known = self.view.rev
        told = self.view.apply(snapshot, now=0)
        assert told is (Refreshed.OLDER if snapshot.rev < known else Refreshed.APPLIED)
        if snapshot.since is None and told is Refreshed.APPLIED:
            for worker, rev in self.died.items():
                assert rev > snapshot.rev or worker not in self.view.workers

    @precondition(lambda self: bool(self.corrections))
    @rule(which=any_of)
    def hear_true_load(self, which: int) -> None:
        worker, rev, load = self.corrections.pop(which % len(self.corrections))
        self.view.correct(worker, rev=rev, load=load)

    @invariant()
    def nothing_counted_twice_nothing_lost(self) -> None:
        for name, worker in self.view.workers.items():
            if name in self.died:
                continue
            known = max(self.view.rev, worker.known)
            if self.born[name] > known:
                assert worker.home is None  # Heard of by a commit only: no candidate yet.
            unseen = [rev for who, rev in self.heard if who == name and rev > known]
            assert sorted(rev for rev, _ in worker.tags) == sorted(unseen)
            assert worker.own == len(unseen)
            assert worker.load == self.load_at(name, known)
            assert worker.delta == sum(weight for _, weight in worker.tags) >= 1000 * worker.own

    @invariant()
    def pool_sums_are_true(self) -> None:
        pool = self.view.pools["gpu"]
        assert pool.load == sum(worker.load for worker in pool.members)
        assert pool.delta == sum(worker.delta for worker in pool.members)
        assert {w.worker for b in pool.buckets.values() for w in b} == {w.worker for w in pool.members}


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def small_view(**rows: int) -> FleetView:
    view = FleetView(replicas=4, pools=[Pool("gpu")])
    view.apply(Snapshot(10, 0, tuple(WorkerRow(name, "gpu", load, 10, rev=5) for name, load in rows.items())), now=0)
    return view


def test_a_reply_that_its_snapshot_overtook_adds_nothing() -> None:
    view = small_view(a=3)
    view.committed("a", rev=9)
    assert (view.workers["a"].own, view.workers["a"].delta) == (0, 0)


def test_a_reply_that_a_correction_overtook_adds_nothing() -> None:
    view = small_view(a=3)
    view.correct("a", rev=12, load=5)
    view.committed("a", rev=12)
    view.committed("a", rev=13)
    assert (view.workers["a"].load, view.workers["a"].own) == (5, 1)


def test_free_slots_are_counted_without_weights() -> None:
    """With four replicas each own assignment weighs as four, which would make a Pool with free slots look full."""
    view = small_view(a=3, b=9)
    for rev in (11, 12, 13):
        view.committed("a", rev=rev)
    entries = [("gpu", 0), ("unknown", 0)]
    assert view.pools["gpu"].delta > 3_000 and view.free_slots(entries) == 20 - 12 - 3
    view.correct("a", rev=13, load=3, barred="draining")
    assert view.free_slots(entries) == 1
    view.correct("a", rev=14, load=10, barred="")
    assert view.free_slots(entries) == 1
    view.apply(Snapshot(15, 3, (WorkerRow("a", "gpu", 6, 10, rev=13),), since=10), now=0)
    view.apply(Snapshot(16, 3, (WorkerRow("a", "gpu", 6, 10, rev=13), WorkerRow("b", "gpu", 9, 10, rev=5))), now=0)
    assert view.free_slots(entries) == 5 and view.pools["gpu"].own == 0


def test_a_snapshot_that_starts_after_the_view_ends_is_refused() -> None:
    view = small_view(a=3)
    assert view.apply(Snapshot(20, 0, (), since=12), now=0) is Refreshed.GAP
    assert view.rev == 10


def test_an_older_snapshot_changes_nothing() -> None:
    view = small_view(a=3)
    assert view.apply(Snapshot(9, 0, (WorkerRow("a", "gpu", 1, 10, rev=2),)), now=0) is Refreshed.OLDER
    assert view.workers["a"].load == 3


def test_a_correction_ahead_of_the_next_snapshot_survives_it() -> None:
    view = small_view(a=3)
    view.correct("a", rev=20, load=10)
    view.apply(Snapshot(15, 0, (WorkerRow("a", "gpu", 4, 10, rev=14),), since=10), now=0)
    assert view.workers["a"].load == 10
    view.apply(Snapshot(25, 0, (WorkerRow("a", "gpu", 7, 10, rev=24),), since=15), now=0)
    assert view.workers["a"].load == 7


def test_a_wrong_correction_does_not_outlive_the_next_full_snapshot() -> None:
    view = small_view(a=3)
    row = WorkerRow("a", "gpu", 4, 10, rev=14)
    view.correct("a", rev=20, load=9)
    view.apply(Snapshot(15, 0, (row,), since=10), now=0)
    view.apply(Snapshot(25, 0, (row,)), now=0)
    assert view.workers["a"].load == 4


def test_a_correction_older_than_the_view_is_ignored() -> None:
    view = small_view(a=3)
    view.correct("a", rev=9, load=0, barred="draining")
    assert (view.workers["a"].load, view.workers["a"].barred) == (3, "")


def test_a_refusal_may_say_that_a_worker_takes_nothing_new() -> None:
    """A Worker that went with its last slot is in no incremental snapshot; the refusal is the first to tell."""
    view = small_view(a=3, b=0)
    view.correct("b", rev=10, barred="gone")
    assert [worker.worker for worker in view.pools["gpu"].members] == ["a"]
    view.apply(Snapshot(11, 0, (WorkerRow("a", "gpu", 3, 10, rev=5), WorkerRow("b", "gpu", 0, 10, rev=5))), now=0)
    assert len(view.pools["gpu"].members) == 2  # A full snapshot is heard again, also where its row is an old one.


def test_settings_of_a_pool_can_change_and_go() -> None:
    view = small_view(a=3)
    view.configure([Pool("gpu", priority=2), Pool("other")])
    assert view.pools["gpu"].pool.priority == 2
    view.configure([])
    assert view.pools["gpu"].pool == Pool("gpu")
    assert len(view.pools["gpu"].members) == 1


def test_a_worker_may_change_its_pool() -> None:
    view = small_view(a=3)
    view.apply(Snapshot(11, 0, (WorkerRow("a", "cpu", 2, 4, rev=11),), since=10), now=0)
    assert view.pools["gpu"].members == [] and view.pools["gpu"].capacity == 0
    assert (view.pools["cpu"].load, view.pools["cpu"].capacity) == (2, 4)


@given(
    windows=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), max_size=12),
    replicas=st.none() | st.integers(1, 64),
)
def test_the_share_weight_stays_within_its_clip(windows: list[tuple[int, int]], replicas: int | None) -> None:
    share = ShareWeight(replicas)
    placed = 0
    for cell, own in windows:
        for _ in range(own % 50):
            share.own_now += 1
        placed += cell
        share.close_window(placed)
        assert 1000 <= share.milli <= CLIP_REPLICAS * share.replicas * 1000


def weigh(*, cell: int, own: int, replicas: int, windows: int = 4) -> float:
    share = ShareWeight(replicas)
    share.close_window(0)
    for window in range(windows):
        for _ in range(own):
            share.own_now += 1
        share.close_window(cell * (window + 1))
    return share.milli / 1000


def test_the_share_weight_is_measured_not_the_number_of_replicas() -> None:
    assert weigh(cell=1000, own=1000, replicas=16) < 1.1  # This replica takes all the traffic.
    assert 15 < weigh(cell=1000, own=62, replicas=16) < 17  # An even share.
    assert weigh(cell=1000, own=2, replicas=16) == 64  # A small one: clipped to 4R.


def test_tiny_samples_do_not_explode() -> None:
    assert weigh(cell=0, own=0, replicas=16) == 16
    assert weigh(cell=1, own=0, replicas=16, windows=1) < 17
    assert 8 < weigh(cell=1, own=1, replicas=16, windows=1) < 16


def test_a_counter_that_went_back_starts_the_measurement_anew() -> None:
    share = ShareWeight(8)
    share.close_window(100)
    share.close_window(100_000)
    share.close_window(5)
    assert share.milli == 8000
