"""The fleet view: what one replica believes about Pools and Workers (paper, 5.2; design, 5.3-5.4).

The view is a snapshot plus this replica's own assignments that the snapshot does not contain yet. Every change of a
slot in the cell raises the cell's rev, and each own commit is tagged with the rev that it returned. What is known of a
Worker is its load as of some rev: that of the snapshot, or that of a later correction. Tags at or below it are
contained in the load and dropped; tags above it are not and are added. So rebasing is exact, in whatever order commit
replies, snapshots and corrections arrive: load + own never counts an assignment twice and never loses one.

A view only ranks. The store admits, so a view that is stale or plainly wrong costs attempts, never capacity.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from dhsched.placement.index import MILLI, PoolView, WorkerView
from dhsched.placement.pools import Pool
from dhsched.placement.share import ShareWeight

BULK_DIVISOR = 2  # A snapshot with rows for more than 1 / this of the Workers rebuilds the buckets at once.


class WorkerRow(msgspec.Struct, frozen=True, gc=False):
    """One Worker in a snapshot."""

    worker: str
    pool: str
    load: int
    capacity: int
    starting: int = 0
    barred: str = ""  # Why the Worker takes nothing new (draining, lost, ...); empty if it is placeable.
    labels: frozenset[str] = frozenset()
    rev: int = 0  # The cell's rev at this Worker's last change.


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """The Workers that changed after `since`, as of `rev`; all Workers if `since` is None."""

    rev: int
    placed: int
    rows: tuple[WorkerRow, ...]
    since: int | None = None


class Refreshed(Enum):
    """The result of applying a snapshot."""

    APPLIED = "applied"
    OLDER = "older"  # The view is newer than the snapshot. Harmless; if the store has another home, make a new view.
    GAP = "gap"  # The snapshot starts after the view ends, so changes would be missed: request a full one.


class Weighing(Enum):
    """What an own assignment adds to a Worker's effective load until a snapshot contains it."""

    NONE = "none"
    ONE = "one"
    REPLICAS = "replicas"
    SHARE = "share"
    SELECTION = "selection"  # The number of replicas, added when a Worker is chosen, whether it commits or not.


class FleetView:
    """One replica's view; see the module. It changes only by snapshots, own commits, corrections and configuration."""

    def __init__(
        self, *, weighing: Weighing = Weighing.SHARE, replicas: int | None = None, pools: Iterable[Pool] = ()
    ) -> None:
        self.weighing = weighing
        self.rev = -1
        self.taken_at: float | None = None  # When the last snapshot was taken, by the caller's clock.
        self.share = ShareWeight(replicas)
        self._tracks_commits = weighing in (Weighing.ONE, Weighing.REPLICAS, Weighing.SHARE)
        self.pools: dict[str, PoolView] = {}
        self.workers: dict[str, WorkerView] = {}
        self._owing: dict[str, WorkerView] = {}  # Workers with tags; a dict: its order is the same in every run.
        self.configure(pools)

    def weight_milli(self) -> int:
        """Return the weight of the next own assignment, in thousandths of a slot."""
        if self.weighing is Weighing.SHARE:
            return self.share.milli
        if self.weighing is Weighing.NONE:
            return 0
        return MILLI if self.weighing is Weighing.ONE else MILLI * self.share.replicas

    def free_slots(self, entries: Iterable[tuple[str, int]]) -> int:
        """Return the free slots of these Pools, each with its tier, as far as this view knows."""
        return sum(self.pools[name].free_slots() for name, _ in entries if name in self.pools)

    def configure(self, pools: Iterable[Pool]) -> None:
        """Replace the settings of all Pools. A Pool that only its Workers name keeps the defaults."""
        settings = {pool.name: pool for pool in pools}
        for name, view in self.pools.items():
            view.configure(settings.pop(name, Pool(name)))
        for name, pool in settings.items():
            self.pools[name] = PoolView(pool)

    def apply(self, snapshot: Snapshot, *, now: float) -> Refreshed:
        """Apply a snapshot that was requested at `now`, and rebase the own deltas on it."""
        if snapshot.rev < self.rev:
            return Refreshed.OLDER
        if snapshot.since is not None and snapshot.since > self.rev:
            return Refreshed.GAP
        if len(snapshot.rows) * BULK_DIVISOR > len(self.workers):
            for pool in self.pools.values():
                pool.stale = True
        rebased = self._drop_tags(snapshot.rev)
        self._apply_rows(snapshot)
        if snapshot.since is None:
            self._forget_vanished({row.worker for row in snapshot.rows}, snapshot.rev)
        for worker in rebased:
            if worker.home is not None:
                worker.home.reindex(worker)
        self._rebuild_stale()
        self.rev = snapshot.rev
        self.taken_at = now
        self.share.close_window(snapshot.placed)
        return Refreshed.APPLIED

    def committed(self, worker: str, *, rev: int) -> None:
        """Count an own operation that took a slot of `worker`; `rev` is the cell's rev that its commit returned.

        Only for commits that took a slot: a generation that moves into the slot it already holds changes no load.
        A rev names one change, so a repeated call counts once.
        """
        self.share.own_now += 1
        if not self._tracks_commits or rev <= self.rev:
            return  # The snapshot overtook this reply: the load already contains it.
        view = self.workers.get(worker) or self._meet(worker)
        if rev <= view.known or (view.tags and any(tag == rev for tag, _ in view.tags)):
            return
        self._tag(view, rev, self.weight_milli(), own=1)

    def selected(self, worker: str) -> None:
        """Count a Worker that was chosen by a policy which counts at selection; its next news resets the count."""
        view = self.workers[worker]
        self._tag(view, max(self.rev, view.known) + 1, self.weight_milli(), own=0)

    def correct(
        self,
        worker: str,
        *,
        rev: int,
        load: int | None = None,
        starting: int | None = None,
        barred: str | None = None,
    ) -> None:
        """Correct one Worker by a refusal or a departure, which is true as of `rev`. Older news is ignored."""
        view = self.workers.get(worker) or self._meet(worker)
        if rev < max(self.rev, view.known):
            return
        view.row_rev = -1  # The numbers differ from that row now: the next full snapshot must be applied.
        if starting is not None:
            view.starting = starting
        if load is not None:
            view.known = rev
            self._drop_tags_of(view, rev)
            self._set_load(view, load)
        if barred is not None and barred != view.barred and view.pool:
            self._rehome(view, view.pool, view.capacity, barred)
        self._rebuild_stale()

    def _apply_rows(self, snapshot: Snapshot) -> None:
        """Apply all rows in one loop, without calls for the usual row, in which only the load changed."""
        workers = self.workers
        rev = snapshot.rev
        for row in snapshot.rows:
            if (view := workers.get(row.worker)) is None:
                view = self._meet(row.worker)
            elif view.row_rev == row.rev:
                continue
            view.row_rev = row.rev
            view.starting = row.starting
            if view.labels != row.labels:
                view.labels = row.labels
                if view.home is not None:
                    view.home.relabelled()
            if row.barred != view.barred or row.capacity != view.capacity or row.pool != view.pool:
                self._rehome(view, row.pool, row.capacity, row.barred)
            if rev < view.known:
                # A correction has a later load than this snapshot. Should it have been wrong, the next full
                # snapshot must still be applied, so this row does not count as applied.
                view.row_rev = -1
                continue
            home, load = view.home, row.load
            if home is not None:
                home.load += load - view.load
            view.load = load
            if home is not None and not home.stale:
                home.reindex(view)

    def _rehome(self, view: WorkerView, pool: str, capacity: int, barred: str) -> None:
        if view.home is not None:
            view.home.dismiss(view)
        view.pool, view.capacity, view.barred = pool, capacity, barred
        if not barred:
            if (home := self.pools.get(pool)) is None:
                home = self.pools[pool] = PoolView(Pool(pool))
                home.stale = True  # Its other Workers are likely in the same snapshot: fill the buckets once.
            home.admit(view)

    def _set_load(self, view: WorkerView, load: int) -> None:
        if (home := view.home) is None:
            view.load = load
        else:
            home.load += load - view.load
            view.load = load
            home.reindex(view)

    def _meet(self, worker: str) -> WorkerView:
        """Add an unknown Worker. Until a row brings its Pool the Worker is no candidate, but its tags count."""
        view = self.workers[worker] = WorkerView(worker)
        return view

    def _forget_vanished(self, present: set[str], rev: int) -> None:
        for worker, view in list(self.workers.items()):
            if worker in present:
                continue
            if view.home is not None:
                view.home.dismiss(view)
            if view.tags or view.known > rev:
                # The Worker is newer than this snapshot: keep its numbers until a snapshot contains it.
                view.pool, view.barred, view.row_rev = "", "unknown", -1
            else:
                del self.workers[worker]

    def _tag(self, view: WorkerView, rev: int, weight: int, *, own: int) -> None:
        view.tags.append((rev, weight))
        view.own += own
        view.delta += weight
        self._owing[view.worker] = view
        if view.home is not None:
            view.home.own += own
            view.home.delta += weight
            view.home.reindex(view)

    def _drop_tags(self, rev: int) -> list[WorkerView]:
        """Drop the tags that a snapshot as of `rev` contains, and return the Workers that the caller must reindex."""
        touched = list(self._owing.values())
        for view in touched:
            self._drop_tags_of(view, rev)
        return touched

    def _drop_tags_of(self, view: WorkerView, rev: int) -> None:
        kept = [tag for tag in view.tags if tag[0] > rev]
        delta = sum(weight for _, weight in kept)
        own = len(kept) if self._tracks_commits else 0
        if view.home is not None:
            view.home.own += own - view.own
            view.home.delta += delta - view.delta
        view.tags = kept
        view.own, view.delta = own, delta
        if not kept:
            self._owing.pop(view.worker, None)

    def _rebuild_stale(self) -> None:
        for pool in self.pools.values():
            if pool.stale:
                pool.rebuild()
