"""Limits of tenants: streams, waiting creates, requests a second and pending input, over all replicas. Pure: time is an
argument.

Every replica counts for itself, and about once a second tells the others through the store (`quota_reports.py`). It
admits by its own counts and by what the others said last, so no request costs a call:

- *Streams and waiting creates*: one more is admitted while the own ones and the others' are below the limit.
- *Requests*: a bucket per tenant, whose rate is the replica's fair share of the limit: what the others asked for is
  subtracted in full where that is less than an equal part; the rest is divided equally.

Between two reports a replica does not know what the others admit. So in a burst from nothing each replica may admit as
much as was free for all of them, for one report's time; after that the sum keeps the limit.

*Pending input* is not counted by replicas: the store is asked about once a second what the input of each tenant takes
(dispatch/telemetry/pending.py), and a tenant that had too much at the last measurement may push no more until the next
one that finds less.

`lives_max` is not counted here: the step `place` compares it, exactly.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Literal

from dhsched.access.bucket import Bucket
from dhsched.access.callers import Caller
from dhsched.access.tenants import EVERY_OTHER, NO_LIMITS, TenantLimits
from dhsched.errors import OverQuota
from dhsched.store.records.tenants import PENDING_MS, TenantCounts

COUNTED_ROLES = ("app", "room")
"""Roles whose keys belong to a tenant. What admins, operators and readers ask for counts against no tenant's rate."""
REPORT_MAX = 10_000  # Tenants in one report; further ones are limited at each replica by itself.

Kind = Literal["streams", "waiting"]
WORDS: dict[Kind, str] = {"streams": "open streams and watchers", "waiting": "creates that wait for a free slot"}


class Quotas:
    """The limits of all tenants, and what one replica knows of their use."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.limits: Mapping[str, TenantLimits] = {}  # By tenant, `*` among them; empty if nobody has any.
        self.limits_are_read = False  # Where they are written, and not from a copy.
        self._taken: dict[Kind, Counter[str]] = {"streams": Counter(), "waiting": Counter()}
        self._requests: Counter[str] = Counter()  # Since the last report.
        self._reported_at = monotonic()
        self._others: list[Mapping[str, TenantCounts]] = []
        self._buckets: dict[str, Bucket] = {}
        self.over_pending: Mapping[str, tuple[int, int]] = {}  # Used and limit of tenants that may push nothing now.
        self.pending: Mapping[str, int] = {}  # Bytes of input at the last measurements, by tenant.
        self._pending_in: dict[str, tuple[float, Mapping[str, int]]] = {}  # The same by cell, with its time.

    def limits_of(self, tenant: str) -> TenantLimits:
        """Return the limits that apply to a tenant."""
        return limits_of(self.limits, tenant)

    def set_limits(self, limits: Mapping[str, TenantLimits]) -> None:
        """Replace all limits, by tenant."""
        self.limits = limits
        self._buckets = {tenant: each for tenant, each in self._buckets.items() if self.limits_of(tenant).rate_per_s}
        self._share()
        self.over_pending = over_pending(self.limits, self.pending)

    # -- streams and waiting creates

    @contextmanager
    def occupy(self, kind: Kind, tenant: str) -> Iterator[None]:
        """Count one more of `kind` while the block runs, or raise OverQuota."""
        limits, occupied = self.limits_of(tenant), self._taken[kind]
        limit = limits.streams_max if kind == "streams" else limits.waiting_max
        used = occupied[tenant] + sum(getattr(each[tenant], kind) for each in self._others if tenant in each)
        if limit and used >= limit:
            raise OverQuota(
                f"tenant {tenant} has {used} {WORDS[kind]}, and may have {limit}; close some, or ask an admin for a "
                f"higher {kind}_max",
                tenant=tenant,
                quota=f"{kind}_max",
                used=used,
                limit=limit,
                retry_after_s=5,
            )
        occupied[tenant] += 1
        try:
            yield
        finally:
            occupied[tenant] -= 1
            if not occupied[tenant]:
                del occupied[tenant]

    # -- requests

    def take(self, caller: Caller) -> None:
        """Count a request of this caller, or raise OverQuota."""
        bucket = self._bucket(caller)
        if bucket is None:
            return
        tenant = caller.tenant
        self._requests[tenant] += 1
        wait_s = bucket.take(self._monotonic())
        if wait_s > 0:
            limit = self.limits_of(tenant).rate_per_s
            raise OverQuota(
                f"tenant {tenant} may make {limit:g} requests a second with all its keys, {bucket.rate_per_s:.3g} of "
                f"them at this replica now; try again in {wait_s:.1f} s, or ask an admin for a higher rate_per_s",
                tenant=tenant,
                quota="rate_per_s",
                used=self._requests[tenant] + sum(each[tenant].requests for each in self._others if tenant in each),
                limit=limit,
                retry_after_s=max(1, ceil(wait_s)),
            )

    def slow(self, caller: Caller, count: int) -> float:
        """Return for how many seconds not to read from a caller that has sent `count` items over a socket."""
        bucket = self._bucket(caller)
        if bucket is None:
            return 0.0
        self._requests[caller.tenant] += count
        return bucket.charge(count, self._monotonic())

    def _bucket(self, caller: Caller) -> Bucket | None:
        """Return the bucket of the caller's tenant, or None if nothing limits the caller."""
        bucket = self._buckets.get(caller.tenant)
        if caller.role not in COUNTED_ROLES:
            return None
        if bucket is None and self.limits_of(caller.tenant).rate_per_s:
            bucket = self._buckets[caller.tenant] = Bucket(self._rate(caller.tenant), self._monotonic())
        return bucket

    def _rate(self, tenant: str) -> float:
        others = [each[tenant].requests for each in self._others if tenant in each]
        return fair_share(self.limits_of(tenant).rate_per_s, others)

    def _share(self) -> None:
        for tenant, bucket in self._buckets.items():
            bucket.rate_per_s = self._rate(tenant)

    # -- pending input

    def too_much_pending(self, tenant: str) -> OverQuota:
        """Return the error for a tenant in `over_pending`, which has too much input pending and may push nothing but
        interrupts. An interrupt always passes: it drops what is pending."""
        used, limit = self.over_pending[tenant]
        return OverQuota(
            f"tenant {tenant} has {used} bytes of input pending, and may have {limit}; wait for its Workers to ack "
            "some, or ask an admin for a higher pending_bytes_max",
            tenant=tenant,
            quota="pending_bytes_max",
            used=used,
            limit=limit,
            retry_after_s=2,
        )

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of the records, `*` among them, that limit pending input: it is measured for these only."""
        return tuple(sorted(name for name, limits in self.limits.items() if limits.pending_bytes_max))

    # -- what the replicas tell each other

    @property
    def shared(self) -> bool:
        """Whether any tenant has a limit for which the replicas must know of each other."""
        return any(
            each.streams_max or each.waiting_max or each.rate_per_s or each.pending_bytes_max
            for each in self.limits.values()
        )

    def report(self) -> dict[str, TenantCounts]:
        """Return what this replica counts of each tenant that has limits; requests are those since the last report,
        refused ones included, per second."""
        now = self._monotonic()
        period_s = max(now - self._reported_at, 0.001)
        found: dict[str, TenantCounts] = {}
        for tenant in [*{**self._taken["streams"], **self._taken["waiting"], **self._requests}][:REPORT_MAX]:
            limits = self.limits_of(tenant)
            if limits.streams_max or limits.waiting_max or limits.rate_per_s:
                requests = ceil(self._requests[tenant] / period_s)
                found[tenant] = TenantCounts(self._taken["streams"][tenant], self._taken["waiting"][tenant], requests)
        self._reported_at = now
        self._requests.clear()
        return found

    def learn(self, others: Iterable[Mapping[str, TenantCounts]]) -> None:
        """Take in what the other replicas reported last, one mapping for each replica."""
        self._others = [*others]
        self._share()

    def learn_pending(self, pending: Mapping[str, int], cell: str = "") -> None:
        """Take in the last measurement of pending input in a cell."""
        now = self._monotonic()
        self._pending_in[cell] = (now, pending)
        # Nobody is refused by a figure that nobody renews: the store of that cell is away.
        kept = [each for at, each in self._pending_in.values() if 1_000 * (now - at) < PENDING_MS]
        self.pending = pending if len(kept) == 1 else added_up(kept)
        self.over_pending = over_pending(self.limits, self.pending)

    def pending_in(self, cell: str) -> Mapping[str, int]:
        """Return the last measurement of pending input in a cell, in bytes by tenant."""
        return self._pending_in[cell][1] if cell in self._pending_in else {}


def added_up(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def limits_of(limits: Mapping[str, TenantLimits], tenant: str) -> TenantLimits:
    """Return the limits that apply to a tenant: its own, else those of `*`, else none."""
    return limits.get(tenant) or limits.get(EVERY_OTHER) or NO_LIMITS


def over_pending(limits: Mapping[str, TenantLimits], pending: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the bytes and the limit of each tenant that has as much input pending as it may have, or more."""
    rows = ((tenant, used, limits_of(limits, tenant).pending_bytes_max) for tenant, used in pending.items())
    return {tenant: (used, limit) for tenant, used, limit in rows if limit and used >= limit}


def fair_share(limit: float, others: Iterable[float]) -> float:
    """Return the part of `limit` that is left for one replica that may want all of it, when the others want so much."""
    asked = sorted(others)
    left, sharing = limit, len(asked) + 1
    for each in asked:
        if each >= left / sharing:
            break
        left, sharing = left - each, sharing - 1
    return left / sharing
