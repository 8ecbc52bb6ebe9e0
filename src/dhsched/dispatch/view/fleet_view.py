"""One replica's view of the fleet, kept fresh: all its placements choose candidates from this view.

Every 200 ms to 1 s, at random so that replicas do not act in step, the view reads what changed since its revision. It
reads a full snapshot at the start, every `full_every_s` (only a full snapshot shows which Workers vanished), and
whenever the store's history is not the one that the view was made from. In between the view learns from this replica's
own commits and from refusals. The view only ranks, so a stale view costs attempts, never capacity; when it is older
than `fresh_s`, the replica reports that it is not ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

import structlog

from dhsched.client.models.pools import DigitalIdConfig, PoolConfig
from dhsched.dispatch.config import DIGITAL_IDS, POOLS, as_pool, as_request
from dhsched.dispatch.loops import repeat
from dhsched.errors import BadSetting
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
from dhsched.store.records import Records
from dhsched.store.records.fleet import FleetRows, WorkerState

log = structlog.get_logger(__name__)

MEMORY_EVERY_S = 2.0
BARRED_BY: dict[str, str] = {
    "UNKNOWN": "unknown",
    "GONE": "gone",
    "LOST": "lost",
    "CORDONED": "cordoned",
    "DRAINING": "draining",
    "NEW": "new",
}


@dataclass(frozen=True, slots=True)
class Lost:
    """Evidence that the store lost history: its term when the loss was seen, and the latest term seen before."""

    term: int
    seen_term: int
    reason: str


class Fleet:
    """The view and the configuration of Pools and DigitalIDs, with the task that keeps both fresh."""

    def __init__(self, records: Records, settings: DispatchSettings, *, rng: Random | None = None) -> None:
        if settings.policy not in POLICIES:
            raise BadSetting(f"setting policy is {settings.policy!r}; it must be one of {', '.join(POLICIES)}")
        self.policy = POLICIES[settings.policy]
        self.view: FleetView = view_for(self.policy)
        self.pools: dict[str, PoolConfig] = {}
        self.digital_ids: dict[str, DigitalIdConfig] = {}
        self.memory_share = 0.0
        self.refreshes = 0
        self.lost: Lost | None = None
        """Set when the store was found older than it was, until a new term has begun because of it (terms.py)."""
        self.on_refresh: list[Callable[[], None]] = []
        self._requests: dict[str, PlacementRequest] = {}
        self._records = records
        self._settings = settings
        self._rng = rng or Random()
        self.term = 0
        self._config_rev = -1
        self._full_at = 0.0
        self._memory_at = 0.0
        self._lock = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    # -- life

    async def start(self) -> None:
        """Read the first full snapshot, then refresh the view until `stop`."""
        await self.refresh(full=True)
        pause_s = partial(self._rng.uniform, self._settings.refresh_min_s, self._settings.refresh_max_s)
        self._keeper = asyncio.create_task(repeat("fleet view", self.refresh, pause_s), name="fleet view")

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper

    # -- reading

    @property
    def age_s(self) -> float:
        """The seconds since the view was last refreshed; infinite before the first refresh."""
        taken_at = self.view.taken_at
        return float("inf") if taken_at is None else asyncio.get_running_loop().time() - taken_at

    async def request(self, digital_id: str) -> PlacementRequest | None:
        """Return the placement request of a DigitalID, or None if the store's configuration does not have it."""
        if digital_id not in self._requests and await self._records.config.rev() != self._config_rev:
            await self.read_config()
        return self._requests.get(digital_id)  # Not before the await: another request may have read it meanwhile.

    async def unplaceable(self, digital_id: str) -> str:
        """Return why the configuration lets no Worker take a live of this DigitalID; empty when some Worker may."""
        request = await self.request(digital_id)
        if request is None:
            return f"its DigitalID {digital_id} does not exist any more; put it again"
        return unplaceable(self.view, request)

    def free_slots(self) -> int:
        """Return the number of slots that the view believes to be free."""
        pools = self.view.pools.values()
        return sum(max(0, pool.capacity - pool.load) for pool in pools)

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
            rows = await self._records.fleet.snapshot(None if full else self.view.rev)
            if self.term not in (0, rows.term) or rows.rev < self.view.rev:
                # The store has another history now: the changes that the view was made from may be lost.
                log.warning("the store's history changed", term=rows.term, rev=rows.rev, seen_rev=self.view.rev)
                if (rows.term, rows.rev) < (self.term, self.view.rev):
                    # The store went back, and this replica has read the proof.
                    was, now_has = f"term {self.term} rev {self.view.rev}", f"term {rows.term} rev {rows.rev}"
                    reason = f"this replica read {was} of the store, which has {now_has} now"
                    self.lost = Lost(rows.term, max(self.term, rows.term), reason)
                self._renew()
                full, rows = True, await self._records.fleet.snapshot(None)
            self.term = rows.term
            if rows.config_rev != self._config_rev:
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

    async def read_config(self) -> None:
        """Read Pools and DigitalIDs. The revision is read first, so that a change meanwhile is read again later."""
        rev = await self._records.config.rev()
        pools = await self._records.config.all(POOLS, PoolConfig)
        self.digital_ids = await self._records.config.all(DIGITAL_IDS, DigitalIdConfig)
        self.pools = pools
        self.view.configure(as_pool(name, config) for name, config in pools.items())
        self._requests = {name: as_request(name, config) for name, config in self.digital_ids.items()}
        self._config_rev = rev

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
        labels=frozenset(row.labels.replace(",", " ").split()),
        rev=row.rev,
    )
