"""Drains over HTTP: request a drain, get its progress and what each live waits for, cancel the drain."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from dhsched.client.models import workers as m
from dhsched.client.models.base import UNSET
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.api.workers import no_worker
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.moves.drain import ask_for_drain, cancel_drain, default_request, plan_now
from dhsched.dispatch.moves.plan import DrainNotes, Standing
from dhsched.ownership import outcomes as o
from dhsched.placement.pools import order_pools
from dhsched.store.records.lives import LiveOnWorker
from dhsched.types import check_worker
from dhsched.web import Endpoint, Problem, Request

SHOWN_MAX = 1_000  # Lives listed in one answer; the rest is only counted.
BOUNDARY_WAIT_MAX_S = 100.0
"""A longer wait is refused: a move expires after two minutes, and must be cut over before."""


class Drains(Part):
    """The endpoints of drains, of one replica."""

    def __init__(self, context: DispatchContext, notes: DrainNotes) -> None:
        super().__init__(context)
        self._notes = notes

    def endpoints(self) -> list[Endpoint]:
        path = "/v1/workers/{worker}/drain"
        return [
            Endpoint(
                name="drain_worker",
                method="POST",
                path=path,
                handler=self.drain,
                summary="Move every live off this Worker, at boundaries, and take no new ones.",
                tag="workers",
                path_type=p.WorkerPath,
                body=m.DrainWorker,
                replies={200: m.Drain},
                problems=["IN_USE", "NOT_FOUND"],
            ),
            Endpoint(
                name="get_drain",
                method="GET",
                path=path,
                handler=self.get,
                summary="How far a drain is, and what each live that is left waits for.",
                tag="workers",
                path_type=p.WorkerPath,
                replies={200: m.Drain},
                problems=["NOT_FOUND"],
            ),
            Endpoint(
                name="undrain_worker",
                method="DELETE",
                path=path,
                handler=self.undrain,
                summary="Cancel a drain: lives that have not moved stay, and the Worker takes new lives again.",
                tag="workers",
                path_type=p.WorkerPath,
                replies={200: m.WorkerMode},
                problems=["NOT_FOUND"],
            ),
        ]

    async def drain(self, asked: Request) -> m.Drain:
        worker, body = check_worker(asked.path.worker), asked.body
        if body.to_cell is not UNSET and not self.context.cell:
            raise Problem(
                "NOT_FOUND", f"cell {body.to_cell} does not exist: this deployment has one cell, without a name"
            )
        if body.to_cell is not UNSET and body.to_cell == self.context.cell:
            raise Problem("IN_USE", f"Worker {worker} is in cell {body.to_cell} already; name another cell")
        await self._exists(worker)
        outcome = await ask_for_drain(
            self.context,
            worker,
            by=f"request {asked.request_id}",
            deadline_s=None if body.deadline_s is UNSET else body.deadline_s,
            boundary_wait_s=None if body.boundary_wait_s is UNSET else body.boundary_wait_s,
            to_cell=None if body.to_cell is UNSET else body.to_cell,
        )
        if not isinstance(outcome, o.WorkerSet):
            raise no_worker(worker)
        return await self._progress(worker)

    async def get(self, asked: Request) -> m.Drain:
        return await self._progress(check_worker(asked.path.worker))

    async def undrain(self, asked: Request) -> m.WorkerMode:
        worker = check_worker(asked.path.worker)
        outcome = await cancel_drain(self.context, worker)
        if not isinstance(outcome, o.WorkerSet):
            raise no_worker(worker)
        return m.WorkerMode(worker, outcome.mode)

    async def _exists(self, worker: str) -> None:
        """Raise NOT_FOUND for an unknown Worker, before a drain request is written."""
        found = await self.context.records.workers.get(worker)
        if found is None or found[0].gone:
            raise no_worker(worker)

    async def _progress(self, worker: str) -> m.Drain:
        """Return the drain's progress, from the records and from this replica's notes of its last tries."""
        context = self.context
        records = context.records
        found, asked, rows, now_ms = await asyncio.gather(
            records.workers.get(worker),
            records.drains.get(worker),
            records.lives.on_worker(worker),
            records.server.now_ms(),
        )
        if found is None:
            raise no_worker(worker)
        record, table = found
        draining = record.mode == "draining"
        request = asked or default_request(context, worker)
        moves_max = record.pace * record.cutovers_max
        standings = plan_now(context, self._notes, rows, request, now_ms, moves_max).standings if draining else ()
        slots = Counter(table.values())
        states = Counter(standing.state for standing in standings)
        left = len(rows) + slots["vacant"]
        return m.Drain(
            worker=worker,
            status=record.status,
            mode=record.mode,
            asked_at_ms=request.asked_at_ms,
            deadline_in_s=max(0, request.deadline_at_ms - now_ms) / 1000 if request.deadline_at_ms else None,
            boundary_wait_s=request.boundary_wait_s,
            lives=max(request.lives, left),
            moved=max(0, request.lives - left),
            left=left,
            moving=states["moving"],
            waiting=states["waiting"],
            queued=states["queued"],
            blocked=states["blocked"],
            departing=slots["departing"],
            vacant=slots["vacant"],
            done=draining and not left and not slots["departing"],
            reasons=dict(Counter(standing.code for standing in standings)),
            details=[detail(standing) for standing in standings[:SHOWN_MAX]],
            free_elsewhere=await self._free_elsewhere(worker, rows),
            to_cell=request.to_cell or UNSET,
        )

    async def _free_elsewhere(self, worker: str, rows: Sequence[LiveOnWorker]) -> int:
        """Return the free slots of other Workers in the Pools that may take some of these lives."""
        fleet = self.context.fleet
        pools: set[str] = set()
        for digital_id in {row.digital_id for row in rows}:
            if (request := await fleet.request(digital_id)) is not None:
                ranked, _ = order_pools(fleet.view.pools, request.pools, request.required_labels)
                pools.update(each.pool for each in ranked)
        return sum(
            max(0, each.capacity - each.load)
            for each in fleet.view.workers.values()
            if each.pool in pools and not each.barred and each.worker != worker
        )


def detail(standing: Standing) -> m.DrainingLive:
    tenant, _, live_id = standing.row.live.partition("/")
    return m.DrainingLive(
        live_id=live_id,
        tenant=tenant,
        epoch=standing.row.epoch,
        state=standing.state,
        code=standing.code,
        reason=standing.reason,
        target=standing.row.target,
    )
