"""Reassign over HTTP: move one live to a Worker that placement chooses, or to the named target and no other."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from dhsched.client.models import lives as m
from dhsched.client.models.base import LivePath
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.create import IDEMPOTENCY_KEY, digest, placed
from dhsched.dispatch.api.lives import find_digital_id, find_live, not_found
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.api.refusals import ended, explanation_of, no_free_slot
from dhsched.dispatch.commit import Attempt, Intent, NoFreeSlot, choose_candidates, commit
from dhsched.ownership import outcomes as o
from dhsched.placement import Choice, PlacementRequest, name_worker
from dhsched.types import check_worker, live_key
from dhsched.web import YES, Endpoint, Problem, Request


class Reassign(Part):
    """The endpoint that moves a live, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="reassign_live",
                method="POST",
                path="/v1/lives/{live_id}/reassign",
                handler=self.reassign,
                summary="Move a live to another Worker, or to the one named.",
                tag="lives",
                path_type=LivePath,
                query=p.ExplainQuery,
                body=m.Reassign,
                headers=[IDEMPOTENCY_KEY],
                replies={200: m.Placed},
                problems=[
                    *("NOT_FOUND", "STALE", "ENDED", "DRAINING", "UNPLACEABLE"),
                    *("FULL", "STARTING", "WAITING", "NO_ELIGIBLE_POOL"),
                ],
            )
        ]

    async def reassign(self, asked: Request) -> m.Placed:
        """Move the live and return its new place. The expected epoch keeps two operators from moving it twice."""
        body: m.Reassign = asked.body
        live_id, context = asked.path.live_id, self.context
        record = await find_live(context, asked, live_id)
        request = await find_digital_id(context, record.digital_id)
        source = record.selected
        target = body.target if isinstance(body.target, str) else ""
        for worker in body.avoid:
            check_worker(worker)
        if target:
            choice = await self._choose_target(target, request)
        else:
            choice = choose_candidates(context, structs.replace(request, avoid=frozenset(body.avoid), last=source))
        intent = Intent(
            live=live_key(asked.caller.tenant, live_id),
            cause="reassign",
            point="reassign",
            operation=self._operation(asked, live_id),
            choice=choice,
            expected=body.expected_epoch,
            leave="" if target else source,
            holder=source if target == source else "",
        )
        attempt = await commit(context, intent)
        if target and isinstance(attempt.outcome, NoFreeSlot):
            raise refused_by(target, attempt.outcome.refusals[0])
        return await self._answer(live_id, attempt, explained=asked.query.explain in YES)

    async def _choose_target(self, target: str, request: PlacementRequest) -> Choice:
        """Return a choice of the target alone, if the live may be there: "move to B" never becomes "moved to C"."""
        check_worker(target)
        found = await self.context.records.workers.get(target)
        if found is None:
            raise Problem("NOT_FOUND", f"Worker {target} does not exist; list the Workers", worker=target)
        pool = found[0].pool
        if pool not in {name for name, _ in request.pools}:
            raise Problem(
                "NO_ELIGIBLE_POOL",
                f"Worker {target} is in Pool {pool}, which DigitalID {request.digital_id} does not list; choose a "
                "Worker of its Pools, or list this Pool",
                worker=target,
                pool=pool,
            )
        return name_worker(self.context.fleet.view, request, target, now=self.context.loop_time(), how="named")

    def _operation(self, asked: Request, live_id: str) -> str:
        key = asked.header("Idempotency-Key")
        if not key:
            return self.context.operation()
        return "op-" + digest(asked.caller.tenant, live_id, key)

    async def _answer(self, live_id: str, attempt: Attempt, *, explained: bool) -> m.Placed:
        match attempt.outcome:
            case o.Committed() as done:
                return placed(live_id, done, explanation_of(self.context, attempt) if explained else None)
            case o.Stale(current):
                now = {"worker": current.worker, "epoch": current.epoch} if current else None
                raise Problem(
                    "STALE",
                    f"live {live_id} has moved to {current}; get it again before you move it",
                    live_id=live_id,
                    current=now,
                )
            case o.Ended():
                raise ended(live_id)
            case o.NotFound():
                raise not_found(live_id)
            case outcome if isinstance(outcome, NoFreeSlot):
                raise await no_free_slot(self.context, live_id, attempt, admin=True, explained=explained)
            case outcome:
                raise AssertionError(f"place(reassign) answered {outcome}")


def refused_by(target: str, refusal: o.Refusal) -> Problem:
    """Return the problem that says why the target did not take the live."""
    numbers: dict[str, Any] = {
        "worker": target,
        "reason": refusal.reason,
        "load": refusal.load,
        "capacity": refusal.capacity,
    }
    match refusal.reason:
        case "FULL" | "STARTING" | "WAITING":
            what = "is full" if refusal.reason == "FULL" else "is starting as many lives as it may"
            detail = f"Worker {target} {what} ({refusal.load}/{refusal.capacity}); name another target, or none"
            return Problem(refusal.reason, detail, **numbers)
        case "DRAINING":
            return Problem("DRAINING", f"Worker {target} is draining; name another target, or none", **numbers)
        case "UNKNOWN" | "GONE":
            return Problem("NOT_FOUND", f"Worker {target} is gone; name another target, or none", **numbers)
        case reason:
            state = {"CORDONED": "cordoned", "LOST": "lost", "NEW": "new and has not reported yet"}[reason]
            return Problem("UNPLACEABLE", f"Worker {target} is {state}; name another target, or none", **numbers)
