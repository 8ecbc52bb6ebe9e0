"""`GET /v1/recoveries`: lives that lost their Worker and have no other one yet, why, and where in line they stand."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from dhsched.dispatch import models as m
from dhsched.dispatch.context import DispatchContext
from dhsched.store.records.recovering import Recovering
from dhsched.web import Asked, Endpoint

SCAN_MAX = 5_000  # Lives that one page looks at; the cursor goes on from there.
SCAN_STEP = 500

FullName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._~-]{1,64}/[A-Za-z0-9._~-]{1,64}$")]


class RecoveriesQuery(m.Strict):
    """`after` is the `next` of the page before."""

    after: FullName | m.Optional = m.UNSET
    limit: m.Limit = m.PAGE_DEFAULT


class LineOut(msgspec.Struct, frozen=True):
    """A place in the line for room in a Pool; 1 is next."""

    pool: str
    place: int
    of: int


class RecoveryOut(msgspec.Struct, frozen=True):
    """A live that must be placed anew. Times are the store's, in milliseconds, 0 where unknown.

    `why` is lost, gone, vacant (its runtime ended), stalled, floor (the store lost history), or `well again` when it
    only waits to be looked at once more. `source` is the Worker that it is to leave. `unplaceable` says why no Worker
    may take it as things are configured: until that is changed it waits in no line. It is empty where some may.
    """

    tenant: str
    live_id: str
    digital_id: str
    priority: int
    source: str
    epoch: int
    why: str
    since_ms: int
    tries: int
    next_look_at_ms: int
    waiting_since_ms: int
    waiting_for: list[LineOut]
    unplaceable: str


class RecoveryList(msgspec.Struct, frozen=True):
    """One page by name; it may be short, or empty. `waiting` counts all who wait, by Pool."""

    recoveries: list[RecoveryOut]
    waiting: dict[str, int]
    next: str | None


class Recoveries:
    """The endpoint, of one replica."""

    def __init__(self, context: DispatchContext) -> None:
        self.context = context

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="list_recoveries",
                method="GET",
                path="/v1/recoveries",
                handler=self.list,
                summary="Lives that must be placed anew, or wait for room, a page at a time.",
                tag="recoveries",
                query=RecoveriesQuery,
                replies={200: RecoveryList},
            )
        ]

    async def list(self, asked: Asked) -> RecoveryList:
        query: RecoveriesQuery = asked.query
        records = self.context.records
        after = "" if query.after is m.UNSET else query.after
        fleet, floor, waiting = await asyncio.gather(
            records.fleet.snapshot(), records.fleet.epoch_floor(), self._waiting()
        )
        workers = {row.worker: row for row in fleet.workers}
        found: list[RecoveryOut] = []
        for _ in range(SCAN_MAX // SCAN_STEP):
            names = await records.lives.all_names(after, SCAN_STEP)
            for row in await records.recovering.among(names, workers=workers, floor=floor):
                found.append(recovery_out(row, await self.context.fleet.unplaceable(row.digital_id)))
                if len(found) == query.limit:
                    more = row.live != names[-1] or len(names) == SCAN_STEP
                    return RecoveryList(found, waiting, row.live if more else None)
            if len(names) < SCAN_STEP:
                return RecoveryList(found, waiting, None)
            after = names[-1]
        return RecoveryList(found, waiting, after)

    async def _waiting(self) -> dict[str, int]:
        fleet = self.context.fleet
        pools = sorted({*fleet.pools, *(each.pool for each in fleet.view.workers.values())})
        return await self.context.records.fleet.waiting(pools)


def recovery_out(row: Recovering, unplaceable: str) -> RecoveryOut:
    tenant, _, live_id = row.live.partition("/")
    return RecoveryOut(
        tenant=tenant,
        live_id=live_id,
        digital_id=row.digital_id,
        priority=row.priority,
        source=row.worker,
        epoch=row.epoch,
        why=row.why,
        since_ms=row.since_ms,
        tries=row.tries,
        next_look_at_ms=row.next_look_ms,
        waiting_since_ms=row.waiting_since_ms,
        waiting_for=[LineOut(line.pool, line.place, line.of) for line in row.lines],
        unplaceable=unplaceable,
    )
