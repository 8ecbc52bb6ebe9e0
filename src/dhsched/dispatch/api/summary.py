"""`GET /v1/summary`: the whole deployment in one document; `GET /v1/replicas`: its controllers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from dhsched.client.models import pools as pm
from dhsched.client.models import summary as m
from dhsched.dispatch.api.configuration import pool_of
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.moves.rebalance import Rebalancing
from dhsched.errors import StoreError
from dhsched.placement.rebalance import Advice
from dhsched.store.homes import shown
from dhsched.store.records.replicas import Reported, SafetyCounts
from dhsched.types import OWNED
from dhsched.web import Endpoint, Request

POOLS_MAX = 256  # Further Pools are counted, not listed.
LOST_MAX = 64  # Lost Workers whose slots are read; those of further ones all count as recovering.
ADVICE_MAX = 20  # Moves of one Pool that are listed.
OVERVIEW_S = 2.0  # Between two summaries for the readers of the feed of changes, who share them.


class SummaryView(Part):
    """The endpoints of the deployment as a whole, of one replica."""

    def __init__(self, context: DispatchContext, rebalancing: Rebalancing) -> None:
        super().__init__(context)
        self._rebalancing = rebalancing
        self._one_overview = asyncio.Lock()
        self._overview: m.Overview | None = None
        self._overview_at = float("-inf")

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="get_summary",
                method="GET",
                path="/v1/summary",
                handler=self.summary,
                summary="The whole deployment in one document: lives, slots, brake, store, safety counters, Pools.",
                tag="fleet",
                replies={200: m.Summary},
            ),
            Endpoint(
                name="list_replicas",
                method="GET",
                path="/v1/replicas",
                handler=self.replicas,
                summary="Dispatch replicas and Infer-Controllers, with version and readiness.",
                tag="fleet",
                replies={200: m.ReplicaList},
            ),
        ]

    async def replicas(self, asked: Request) -> m.ReplicaList:
        return m.ReplicaList([replica_out(each) for each in await self.context.records.replicas.all()])

    async def summary(self, asked: Request) -> m.Summary:
        return await self._summary()

    async def overview(self) -> m.Overview | None:
        """Return what all readers of the feed are shown, made anew after OVERVIEW_S; None while the store is away."""
        async with self._one_overview:
            now = self.context.loop_time()
            if now - self._overview_at >= OVERVIEW_S:
                self._overview = None
                with contextlib.suppress(StoreError):
                    rows = await self.context.records.replicas.all()
                    self._overview = m.Overview(await self._summary(), [replica_out(each) for each in rows])
                # Readers who have waited share it, however long the store took.
                self._overview_at = self.context.loop_time()
            return self._overview

    async def _summary(self) -> m.Summary:
        context = self.context
        records, fleet = context.records, context.fleet
        names = fleet.pool_names()
        began = time.perf_counter()
        at_ms = await records.server.now_ms()
        answered_ms = 1000 * (time.perf_counter() - began)
        standing, reported, open_lives, waiting_lives, waiting, brake = await asyncio.gather(
            context.store.records.server.standing(),
            records.replicas.all(),
            records.lives.open_count(),
            records.fleet.waiting_lives(names),
            records.fleet.waiting(names),
            records.fleet.braking(),
        )
        recovering = await self._recovering()
        settling = context.store.link.settling
        pools = [self._pool(name, waiting) for name in names[:POOLS_MAX]]
        workers = fleet.view.workers.values()
        placeable = [each for each in workers if not each.barred]
        return m.Summary(
            by=context.replica,
            cell=context.store.keys.cell_name,
            at_ms=at_ms,
            view_age_s=round(fleet.age_s, 3),
            workers=len(workers),
            workers_by_status=dict(sorted(Counter(each.barred or "ready" for each in workers).items())),
            lives=m.LiveCounts(
                open=open_lives,
                waiting=waiting_lives,
                recovering=recovering,
                creates_waiting=sum(each.report.creates_waiting for each in reported),
            ),
            slots=m.SlotCounts(
                load=sum(each.load for each in placeable),
                capacity=sum(each.capacity for each in placeable),
                free=sum(max(0, each.capacity - each.load) for each in placeable),
            ),
            brake=m.Brake(bool(brake), brake, max((each.report.silent for each in reported), default=0)),
            store=m.StoreSummary(
                home=shown(context.store.homes.home),
                term=fleet.term,
                answered_ms=round(answered_ms, 2),
                replicas=len(standing.replicas),
                behind_bytes=max((each.behind_bytes for each in standing.replicas), default=0),
                lost_calls=context.store.homes.lost_calls,
                memory_share=fleet.memory_share,
                unsettled="" if settling is None else settling.trouble,
            ),
            safety=add_up(reported),
            pools=pools,
            pools_left_out=len(names) - len(pools),
        )

    async def _recovering(self) -> int:
        """Return how many lives have their current generation on a lost Worker; beyond LOST_MAX Workers, their load."""
        lost = [each for each in self.context.fleet.view.workers.values() if each.barred == "lost" and each.load]
        tables = await asyncio.gather(*(self.context.records.workers.slots(each.worker) for each in lost[:LOST_MAX]))
        owned = sum(1 for table in tables for state in table.values() if state in OWNED)
        return owned + sum(each.load for each in lost[LOST_MAX:])

    def _pool(self, name: str, waiting: Mapping[str, int]) -> m.PoolSummary:
        fleet, pool = self.context.fleet, pool_of(self.context, name)
        shares = [
            each.load / each.capacity
            for each in fleet.view.workers.values()
            if each.pool == name and not each.barred and each.capacity
        ]
        advice: Sequence[Advice] = self._rebalancing.advice.get(name, ())
        return m.PoolSummary(
            name=name,
            workers=pool.workers,
            placeable=pool.placeable,
            load=pool.load,
            capacity=pool.capacity,
            free=pool.free,
            waterline=min(1.0, pool.load / pool.capacity) if pool.capacity else 1.0,
            barred=pool.barred,
            waiting=waiting.get(name, 0),
            spread_pct=round(100 * (max(shares) - min(shares))) if shares else 0,
            rebalance=pool.config.rebalance,
            advised_lives=sum(each.lives for each in advice),
            advice=[pm.AdviceOut(each.source, each.target, each.lives) for each in advice[:ADVICE_MAX]],
        )


def replica_out(reported: Reported) -> m.ReplicaOut:
    report, age_ms = reported
    return m.ReplicaOut(
        role=report.role,
        name=report.name,
        version=report.version,
        url=report.url,
        ready=not report.missing,
        missing=[*report.missing],
        up_s=report.up_s,
        told_ms_ago=age_ms,
        creates_waiting=report.creates_waiting,
        safety=None if report.safety is None else safety_out(report.safety, age_ms),
    )


def safety_out(counts: SafetyCounts, age_ms: int) -> m.SafetyOut:
    checked = None if counts.checked_ms_ago is None else counts.checked_ms_ago + age_ms
    return m.SafetyOut(counts.dual_owners, counts.overshoots, counts.drift, counts.workers, checked)


def add_up(reported: Sequence[Reported]) -> m.Safety:
    """Return the safety counters of all replicas that check."""
    found = [safety_out(each.report.safety, each.age_ms) for each in reported if each.report.safety is not None]
    return m.Safety(
        dual_owners=sum(each.dual_owners for each in found),
        overshoots=sum(each.overshoots for each in found),
        drift=sum(each.drift for each in found),
        workers=sum(each.workers for each in found),
        replicas=len(found),
        checked_ms_ago=min((each.checked_ms_ago for each in found if each.checked_ms_ago is not None), default=None),
    )
