"""One Pool as a replica sees it: its placeable Workers in buckets by effective load.

A decision needs only the lowest few buckets, and a change moves one Worker from one bucket to another, so the cost of
either does not grow with the fleet. Effective load is counted in thousandths of a slot, because an own assignment may
count as a fraction more than one slot; a bucket is one slot wide if all capacities are equal, else a thousandth of the
capacity. Workers believed full share one bucket above all others: they come last and are never lost.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dhsched.placement.pools import Pool

MILLI = 1000
FULL = 1 << 62  # The key of the bucket of Workers believed full: above any load.
OUT = -1  # The key of a Worker that is in no bucket.


class WorkerView:
    """One Worker as a replica sees it: the snapshot's numbers and this replica's own deltas."""

    __slots__ = (
        "barred",
        "capacity",
        "delta",
        "home",
        "key",
        "known",
        "labels",
        "load",
        "member",
        "own",
        "pool",
        "position",
        "row_rev",
        "starting",
        "tags",
        "worker",
    )

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.pool = ""
        self.load = 0  # Slots taken, by the latest snapshot or correction.
        self.capacity = 0
        self.starting = 0
        self.barred = "unknown"  # Why the Worker takes nothing new; empty if it is placeable.
        self.labels: frozenset[str] = frozenset()
        self.row_rev = -1  # The last change of this Worker that a snapshot contained.
        self.known = -1  # The rev of the latest correction of the load, which may be ahead of the snapshot.
        self.tags: list[tuple[int, int]] = []  # (rev of the commit, weight) of own assignments not yet in `load`.
        self.own = 0  # Own assignments among them, each counted as the one slot it takes,
        self.delta = 0  # and in thousandths of a slot, each counted by its weight.
        self.home: PoolView | None = None  # The Pool of which it is a member; None while it is barred.
        self.member = 0  # Its index in home.members,
        self.key = OUT  # the key of its bucket,
        self.position = 0  # and its index in the bucket.

    def effective_milli(self) -> int:
        """Return snapshot load plus weighted own deltas, in thousandths of a slot."""
        return self.load * MILLI + self.delta

    def believed_full(self) -> bool:
        """Return whether all slots are taken, by real slots only: a weight may rank a Worker, never exclude one."""
        return self.load + self.own >= self.capacity


class PoolView:
    """The placeable Workers of one Pool. Code that changes a Worker's numbers calls `reindex` for it."""

    __slots__ = (
        "_by_labels",
        "buckets",
        "capacities",
        "capacity",
        "delta",
        "divisor",
        "keys",
        "load",
        "members",
        "offers",
        "own",
        "pool",
        "stale",
    )

    def __init__(self, pool: Pool) -> None:
        self.configure(pool)
        self.members: list[WorkerView] = []
        self.buckets: dict[int, list[WorkerView]] = {}
        self.keys: list[int] = []  # The keys of `buckets`, ascending.
        self.load = 0  # L_snap(P), C(P), the own assignments and the weighted delta(P), over the members.
        self.capacity = 0
        self.own = 0
        self.delta = 0
        self.capacities: dict[int, int] = {}  # Capacity -> how many members have it.
        self.divisor = MILLI  # Width of a bucket in effective_milli; 0 when capacities differ: then each Worker's own.
        self.stale = False  # Whether the buckets wait for `rebuild`; until then changes leave them alone.
        self._by_labels: dict[frozenset[str], list[WorkerView]] | None = None  # Made on demand.

    def configure(self, pool: Pool) -> None:
        self.pool = pool
        self.offers = pool.offers()

    def waterline(self) -> float:
        """Return (L_snap + delta) / C. A Pool without Workers counts as full, so it comes last among its equals."""
        return (self.load * MILLI + self.delta) / (self.capacity * MILLI) if self.capacity else 1.0

    def full_count(self) -> int:
        return len(self.buckets[FULL]) if self.keys and self.keys[-1] == FULL else 0

    def by_labels(self) -> dict[frozenset[str], list[WorkerView]]:
        """Return the members by their set of labels: there are few such sets, however many Workers."""
        if self._by_labels is None:
            self._by_labels = {}
            for worker in self.members:
                self._by_labels.setdefault(worker.labels, []).append(worker)
        return self._by_labels

    def relabelled(self) -> None:
        self._by_labels = None

    def free_slots(self) -> int:
        """Return the free slots, as the snapshot has them without the own assignments that it does not contain yet: by
        real slots only, because a weight must not make a Pool with free slots look full."""
        return max(0, self.capacity - self.load - self.own)

    def has_free_slot(self) -> bool:
        return bool(self.keys) and self.keys[0] != FULL

    def admit(self, worker: WorkerView) -> None:
        """Add a Worker that became placeable."""
        self._by_labels = None
        worker.home = self
        worker.member = len(self.members)
        self.members.append(worker)
        self.load += worker.load
        self.own += worker.own
        self.delta += worker.delta
        self.capacity += worker.capacity
        self._count_capacity(worker.capacity, 1)
        self.reindex(worker)

    def dismiss(self, worker: WorkerView) -> None:
        """Remove a Worker that takes nothing new. Its numbers must still be the ones it was admitted with."""
        self._leave_bucket(worker)
        self._by_labels = None
        worker.home = None
        if (tail := self.members.pop()) is not worker:
            self.members[worker.member] = tail
            tail.member = worker.member
        self.load -= worker.load
        self.own -= worker.own
        self.delta -= worker.delta
        self.capacity -= worker.capacity
        self._count_capacity(worker.capacity, -1)

    def reindex(self, worker: WorkerView) -> None:
        """Move a Worker to the bucket of its current numbers."""
        if self.stale:
            return
        full = worker.load + worker.own >= worker.capacity
        key = FULL if full else (worker.load * MILLI + worker.delta) // (self.divisor or worker.capacity)
        if key == worker.key:
            return
        self._leave_bucket(worker)
        worker.key = key
        if (bucket := self.buckets.get(key)) is None:
            self.buckets[key] = [worker]
            insort(self.keys, key)
            worker.position = 0
        else:
            worker.position = len(bucket)
            bucket.append(worker)

    def rebuild(self) -> None:
        """Make all buckets anew: after a change of their width, or when most Workers changed at once."""
        buckets: dict[int, list[WorkerView]] = {}
        divisor = self.divisor
        for worker in self.members:
            full = worker.load + worker.own >= worker.capacity
            worker.key = key = FULL if full else (worker.load * MILLI + worker.delta) // (divisor or worker.capacity)
            if (bucket := buckets.get(key)) is None:
                buckets[key] = [worker]
                worker.position = 0
            else:
                worker.position = len(bucket)
                bucket.append(worker)
        self.buckets = buckets
        self.keys = sorted(buckets)
        self.stale = False

    def _leave_bucket(self, worker: WorkerView) -> None:
        key = worker.key
        if key == OUT:
            return
        worker.key = OUT
        if self.stale:
            return  # The buckets are about to be thrown away.
        bucket = self.buckets[key]
        if (tail := bucket.pop()) is not worker:
            bucket[worker.position] = tail
            tail.position = worker.position
        elif not bucket:
            del self.buckets[key]
            del self.keys[bisect_left(self.keys, key)]

    def _count_capacity(self, capacity: int, change: int) -> None:
        if count := self.capacities.get(capacity, 0) + change:
            self.capacities[capacity] = count
        else:
            del self.capacities[capacity]
        divisor = MILLI if len(self.capacities) <= 1 else 0
        if divisor != self.divisor:
            self.divisor = divisor
            self.stale = True
