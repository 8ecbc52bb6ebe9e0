"""`GET /v1/recoveries`: lives that need another Worker and have none yet, why, and their places in waiting lines."""

from __future__ import annotations

import asyncio
from typing import Annotated

from dhsched.client.models import fleet as m
from dhsched.client.models.base import UNSET, Optional, Strict
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.part import Part
from dhsched.store.records.recovering import Recovering
from dhsched.types import whole
from dhsched.web import Endpoint, Request

SCAN_MAX = 5_000  # Lives read for one page; past this the page ends, and its cursor goes on there.
SCAN_STEP = 500

FullName = Annotated[str, whole(r"[A-Za-z0-9._~-]{1,64}/[A-Za-z0-9._~-]{1,64}")]


class RecoveriesQuery(Strict):
    """`after` is the `next` of the page before."""

    after: FullName | Optional = UNSET
    limit: p.Limit = p.PAGE_DEFAULT


class Recoveries(Part):
    """The endpoint of recoveries, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="list_recoveries",
                method="GET",
                path="/v1/recoveries",
                handler=self.list,
                summary="Lives that must be placed anew, or wait for a free slot, a page at a time.",
                tag="recoveries",
                query=RecoveriesQuery,
                replies={200: m.RecoveryList},
            )
        ]

    async def list(self, asked: Request) -> m.RecoveryList:
        query: RecoveriesQuery = asked.query
        records = self.context.records
        after = "" if query.after is UNSET else query.after
        fleet, floor, waiting = await asyncio.gather(
            records.fleet.snapshot(), records.fleet.epoch_floor(), self._waiting()
        )
        workers = {row.worker: row for row in fleet.workers}
        found: list[m.RecoveryOut] = []
        for _ in range(SCAN_MAX // SCAN_STEP):
            names = await records.lives.all_names(after, SCAN_STEP)
            for row in await records.recovering.among(names, workers=workers, floor=floor):
                found.append(recovery_out(row, await self.context.fleet.unplaceable(row.digital_id)))
                if len(found) == query.limit:
                    more = row.live != names[-1] or len(names) == SCAN_STEP
                    return m.RecoveryList(found, waiting, row.live if more else None)
            if len(names) < SCAN_STEP:
                return m.RecoveryList(found, waiting, None)
            after = names[-1]
        return m.RecoveryList(found, waiting, after)

    async def _waiting(self) -> dict[str, int]:
        return await self.context.records.fleet.waiting(self.context.fleet.pool_names())


def recovery_out(row: Recovering, unplaceable: str) -> m.RecoveryOut:
    tenant, _, live_id = row.live.partition("/")
    return m.RecoveryOut(
        tenant=tenant,
        live_id=live_id,
        digital_id=row.digital_id,
        priority=row.priority,
        source=row.worker,
        epoch=row.epoch,
        need=row.need,
        since_ms=row.since_ms,
        tries=row.tries,
        next_look_at_ms=row.next_look_ms,
        waiting_since_ms=row.waiting_since_ms,
        waiting_for=[m.LineOut(line.pool, line.place, line.of) for line in row.lines],
        unplaceable=unplaceable,
    )
