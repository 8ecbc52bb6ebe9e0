"""One replica's view of the fleet, kept fresh: all its placements choose candidates from this view.

Every 200 ms to 1 s, at random so that replicas do not act in step, the view reads what changed since its revision. It
reads a full snapshot at the start, every `full_every_s` (only a full snapshot shows which Workers vanished), and
whenever the store has another home or term than the view was made from. In between the view learns from this replica's
own commits and from refusals. The view only ranks, so a stale view costs attempts, never capacity; when it is older
than `fresh_s`, the replica reports that it is not ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random

import structlog

from dhsched.client.models.pools import DigitalIdConfig, PoolConfig
from dhsched.dispatch.config import DIGITAL_IDS, POOLS, as_pool, as_request, lifetime, pool_limits
from dhsched.dispatch.loops import repeat
from dhsched.errors import BadSetting, StoreUnavailable
from dhsched.ownership import outcomes as o
from dhsched.placement import (
    POLICIES,
    FleetView,
    PlacementRequest,
    Refreshed,
    Snapshot,
    WorkerRow,
    unplaceable,
    view_for,
)
from dhsched.settings import DispatchSettings
from dhsched.store.homes import Entry, shown
from dhsched.store.records import Records
from dhsched.store.records.fleet import FleetRows, WorkerState
from dhsched.store.steps.redis import RedisStore
from dhsched.tasks import cancel
from dhsched.types import labels_of

log = structlog.get_logger(__name__)

MEMORY_EVERY_S = 2.0  # Time between two reads of the store's memory.
BARRED_BY: dict[str, str] = {
    "UNKNOWN": "unknown",
    "GONE": "gone",
    "LOST": "lost",
    "CORDONED": "cordoned",
    "DRAINING": "draining",
    "NEW": "new",
}


class Fleet:
    """The view and the configuration of Pools and DigitalIDs, with the task that keeps both fresh.

    `store` is where this replica takes its steps: the view is of the same home, or of none.
    """

    def __init__(
        self,
        records: Records,
        settings: DispatchSettings,
        *,
        store: RedisStore | None = None,
        rng: Random | None = None,
    ) -> None:
        if settings.policy not in POLICIES:
            raise BadSetting(f"setting policy is {settings.policy!r}; it must be one of {', '.join(POLICIES)}")
        self.policy = POLICIES[settings.policy]
        self.view: FleetView = view_for(self.policy)
        self.pools: dict[str, PoolConfig] = {}
        self.pool_limits: dict[str, dict[str, int]] = {}
        self.digital_ids: dict[str, DigitalIdConfig] = {}
        self.lifetimes: dict[str, tuple[float | None, float | None]] = {}  # Of lives, by DigitalID.
        self.memory_share = 0.0
        self.refreshes = 0
        self.on_refresh: list[Callable[[], None]] = []
        self.requests: dict[str, PlacementRequest] = {}  # Of the DigitalIDs that were read; see `request`.
        self._records = records
        self._store = store
        self._settings = settings
        self._rng = rng or Random()
        self._home = ""
        self.term = 0
        self._config_rev = -1
        self._full_at = 0.0
        self._memory_at = 0.0
        self._lock = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        if store is not None:
            store.homes.on_entered.append(self._entered)

    # -- life

    async def start(self) -> None:
        """Read the first full snapshot, then refresh the view until `stop`."""
        await self.refresh(full=True)
        pause_s = partial(self._rng.uniform, self._settings.refresh_min_s, self._settings.refresh_max_s)
        self._keeper = asyncio.create_task(repeat("fleet view", self.refresh, pause_s), name="fleet view")

    async def stop(self) -> None:
        await cancel(self._keeper)

    # -- reading

    @property
    def age_s(self) -> float:
        """The seconds since the view was last refreshed; infinite before the first refresh."""
        taken_at = self.view.taken_at
        return float("inf") if taken_at is None else asyncio.get_running_loop().time() - taken_at

    async def request(self, digital_id: str) -> PlacementRequest | None:
        """Return the placement request of a DigitalID, or None if the store's configuration does not have it."""
        if digital_id not in self.requests and await self._records.config.rev() != self._config_rev:
            await self.read_config()
        return self.requests.get(digital_id)  # Not before the await: another request may have read it meanwhile.

    async def unplaceable(self, digital_id: str) -> str:
        """Return why the configuration lets no Worker take a live of this DigitalID; empty when some Worker may."""
        if (request := await self.request(digital_id)) is None:
            return f"its DigitalID {digital_id} does not exist any more; put it again"
        return unplaceable(self.view, request)

    def free_slots(self) -> int:
        """Return the number of slots that the view believes to be free."""
        pools = self.view.pools.values()
        return sum(max(0, pool.capacity - pool.load) for pool in pools)

    def pool_names(self) -> list[str]:
        """Return the Pools that are configured or have Workers, by name."""
        return sorted(name for name in {*self.pools, *(each.pool for each in self.view.workers.values())} if name)

    # -- learning

    def learn(self, outcome: o.PlaceOutcome, *, sent_rev: int, took_slot: bool = True) -> None:
        """Correct the view by the outcome of a place that was sent when the view was at `sent_rev`."""
        rev = sent_rev
        if isinstance(outcome, o.Committed) and not outcome.again:
            rev = outcome.rev
            if took_slot:
                self.view.committed(outcome.generation.worker, rev=outcome.rev)
            elif self.policy.corrects:
                # The live held its slot there already, so the load in the store's answer is exact.
                self.view.correct(outcome.generation.worker, rev=outcome.rev, load=outcome.load)
        if not self.policy.corrects or not isinstance(outcome, (o.Committed, o.Full, o.Starting, o.Waiting)):
            return
        for refusal in outcome.refusals:
            barred = BARRED_BY.get(refusal.reason)
            load = None if barred == "unknown" else refusal.load
            self.view.correct(refusal.worker, rev=rev, load=load, barred=barred)

    # -- refreshing

    async def refresh(self, *, full: bool = False) -> None:
        """Read what changed since the view's revision (or everything, if `full`), and apply it to the view."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            full = full or now >= self._full_at or self.view.rev < 0
            rows = await self._snapshot(None if full else self.view.rev)
            was = (self._home, self.term)
            if (was != ("", 0) and was != (rows.home, rows.term)) or rows.rev < self.view.rev:
                # The changes that the view was made from may be lost.
                log.warning("the store has another home or term", home=rows.home, term=rows.term, rev=rows.rev)
                self._renew()
                full, rows = True, await self._snapshot(None)
            self._home, self.term = rows.home, rows.term
            # Copies of two cells may have one revision and other contents for a while (dispatch/cells/copies.py).
            if full or rows.config_rev != self._config_rev:
                await self.read_config()
            if self.view.apply(snapshot(rows, None if full else self.view.rev), now=now) is Refreshed.APPLIED:
                self.refreshes += 1
            if full:
                self._full_at = now + self._settings.full_every_s
            if now >= self._memory_at:
                self.memory_share = await self._records.server.memory_share()
                self._memory_at = now + MEMORY_EVERY_S
        for tell in self.on_refresh:
            tell()

    async def _snapshot(self, since: int | None) -> FleetRows:
        """Read the Workers in the home in which this replica takes its steps.

        The two links are two connections, and either may be at a server that is no primary any more. Where they differ,
        both are left, and greet whoever is there now.
        """
        rows = await self._records.fleet.snapshot(since)
        if self._store is not None and self._store.homes.home not in ("", rows.home):
            reason = f"it reads home {shown(rows.home)} and writes to home {shown(self._store.homes.home)}"
            self._records.link.leave(reason)
            self._store.link.leave(reason)
            raise StoreUnavailable(
                f"this replica's links to the store differ: {reason}; both connect anew", unknown=False
            )
        return rows

    async def read_config(self) -> None:
        """Read Pools and DigitalIDs. The revision is read first, so that a change meanwhile is read again later."""
        rev = await self._records.config.rev()
        pools = await self._records.config.all(POOLS, PoolConfig)
        self.digital_ids = await self._records.config.all(DIGITAL_IDS, DigitalIdConfig)
        self.pools = pools
        self.pool_limits = {name: pool_limits(config) for name, config in pools.items()}
        self.view.configure(as_pool(name, config) for name, config in pools.items())
        self.requests = {name: as_request(name, config) for name, config in self.digital_ids.items()}
        self.lifetimes = {name: lifetime(request, pools) for name, request in self.requests.items()}
        self._config_rev = rev

    def _entered(self, entry: Entry) -> None:
        """Read the whole fleet again after a loss: a server that was emptied while it ran still has its old name."""
        if entry.losses or not entry.again:
            self._full_at = 0.0

    def _renew(self) -> None:
        self.view = view_for(self.policy)
        self.view.configure(as_pool(name, config) for name, config in self.pools.items())


def snapshot(rows: FleetRows, since: int | None) -> Snapshot:
    return Snapshot(rows.rev, rows.placed, tuple(map(worker_row, rows.workers)), since)


def worker_row(row: WorkerState) -> WorkerRow:
    return WorkerRow(
        worker=row.worker,
        pool=row.pool,
        load=row.load,
        capacity=row.capacity,
        starting=row.starting,
        barred=row.barred,
        labels=labels_of(row.labels),
        rev=row.rev,
    )
