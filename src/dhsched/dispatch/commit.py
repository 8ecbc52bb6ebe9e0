"""Choosing candidates and committing: the one place from which a live gets its next generation.

Create, reassign, recover, drain, rebalance and forced moves differ in their request and in what they do afterwards.
Each of them builds an `Intent` and calls `commit`, which asks the store and then does the same for all of them:

- it counts the outcome and every candidate that was passed over,
- it corrects the fleet view by the store's answer,
- it remembers the choice, so that `why` explains it as it was made,
- it follows the new generation, so that its phases are measured.

A commit that must wait for a boundary and was requested too early (NOT_YET) decided nothing, and leaves no trace.

`retry_unknown` is around every other call too with which a replica changes the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from dhsched import failpoints
from dhsched.access.callers import OPEN, Caller
from dhsched.dispatch.context import DispatchContext, Remembered
from dhsched.dispatch.telemetry.handoffs import Begun
from dhsched.errors import StoreUnavailable
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.placement import CANDIDATES_LIMIT, Choice, NoEligiblePool, PlacementRequest, Won, choose
from dhsched.types import Cause, Equals
from dhsched.web import Problem
from dhsched.web.traceparent import GIVEN

NoFreeSlot = o.Full | o.Starting | o.Waiting
REMEMBERED_MAX = 4_096  # Choices kept for `why`; past this the oldest is forgotten, and `why` explains "now".
RETRY_S = 0.1  # Time between two tries of a store call whose outcome is unknown.
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One request to give a live its next generation.

    `choice` names the candidates; with None, no Worker may take the live, and the store removes the live from every
    waiting line. `leave` is the Worker that the live is to leave. `holder` is a Worker that holds a slot for the live
    already: it can take the live even when it is full, and the live uses no second slot there. `lives_max` limits the
    lives of the tenant, for a create; 0 is no limit. `reserved_at_ms` is when a planned move began, for its trace.
    """

    live: str
    cause: Cause
    point: str  # Names the fail points around the store call.
    operation: str
    choice: Choice | None
    expected: int = 0
    create: Create | None = None
    lives_max: int = 0
    leave: str = ""
    holder: str = ""
    at_boundary: bool = False
    reserved_at_ms: int = 0

    @property
    def candidates(self) -> list[str | Equals]:
        """Return the Workers that the store tries, in this order. The holder must be among the candidates, because the
        store's own search finds free slots only."""
        if self.choice is None:
            return []
        if not self.leave and not self.holder:
            return [*self.choice.ranks]
        left_out = [self.leave]
        missing = bool(self.holder) and self.holder not in self.choice.candidates and self.holder != self.leave
        if missing and len(self.choice.candidates) == CANDIDATES_LIMIT:
            left_out.append(self.choice.candidates[-1])
        return [*self.choice.without(*left_out), *([self.holder] if missing else [])]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The store's answer to an intent."""

    intent: Intent
    outcome: o.PlaceOutcome
    won: Won | None = None


def choose_candidates(context: DispatchContext, request: PlacementRequest, caller: Caller = OPEN) -> Choice:
    """Return the candidates for a request, by this replica's view; raise NO_ELIGIBLE_POOL when no Pool may serve it.

    The error names the Pools and their reasons only for a caller that is an admin.
    """
    began = time.perf_counter()
    now = asyncio.get_running_loop().time()
    choice = choose(context.fleet.view, request, rng=context.rng, now=now, policy=context.fleet.policy)
    context.metrics.select_seconds.observe(time.perf_counter() - began)
    if isinstance(choice, NoEligiblePool):
        if not caller.admin:
            detail = f"no Pool may serve DigitalID {request.digital_id}; ask an admin of this deployment"
            raise Problem("NO_ELIGIBLE_POOL", detail, digital_id=request.digital_id)
        raise Problem(
            "NO_ELIGIBLE_POOL",
            f"{choice.reason}; give a Pool these labels, or list another Pool",
            digital_id=request.digital_id,
            excluded={pool.pool: pool.reason for pool in choice.excluded},
        )
    return choice


async def commit(context: DispatchContext, intent: Intent) -> Attempt:
    """Request the live's next generation until the store's outcome is known; then count, learn, remember, follow."""
    sent_rev, began = context.fleet.view.rev, time.perf_counter()
    outcome = await retry_unknown(
        context,
        intent.point,
        partial(
            context.store.place,
            live=intent.live,
            operation=intent.operation,
            cause=intent.cause,
            expected=intent.expected,
            create=intent.create,
            candidates=intent.candidates,
            pools=() if intent.choice is None else intent.choice.pools,
            at_boundary=intent.at_boundary,
            lives_max=intent.lives_max,
        ),
    )
    if isinstance(outcome, o.NotYet):
        return Attempt(intent, outcome)
    took_slot = isinstance(outcome, o.Committed) and outcome.generation.worker != intent.holder
    context.fleet.learn(outcome, sent_rev=sent_rev, took_slot=took_slot)
    context.metrics.places[intent.cause, type(outcome).__name__].inc()
    if isinstance(outcome, o.Committed | NoFreeSlot):
        for refusal in outcome.refusals:
            context.metrics.refusals.labels(refusal.reason).inc()
    if isinstance(outcome, o.Committed) and outcome.again:
        return Attempt(intent, outcome)  # The live was placed by an earlier try, whose choice is not known here.
    epoch, won = intent.expected, None  # A refused choice explains why the live stays in its present generation.
    if isinstance(outcome, o.Committed):
        epoch, won = outcome.generation.epoch, Won(outcome.generation.worker, outcome.load, took_slot)
        took_ms = round(1000 * (time.perf_counter() - began))
        context.handoffs.follow(Begun(intent.live, epoch, intent.cause, GIVEN.get(), took_ms, intent.reserved_at_ms))
    if intent.choice is not None and isinstance(outcome, o.Committed | NoFreeSlot):
        kept, name = context.remembered, type(outcome).__name__
        kept[intent.live] = Remembered(intent.choice, name, epoch, outcome.refusals, won)
        kept.move_to_end(intent.live)
        if len(kept) > REMEMBERED_MAX:
            kept.popitem(last=False)
    return Attempt(intent, outcome, won)


async def retry_unknown(
    context: DispatchContext, point: str, call: Callable[[], Awaitable[T]], *, until: float | None = None
) -> T:
    """Make a store call that changes something, repeat it unchanged while its outcome is unknown, return its outcome.

    After `until` (loop time), or `deadline_s` from now, the last StoreUnavailable is raised. Each such call is safe to
    repeat: by its operation id, by its request id, or because twice is the same as once. `point` names the fail points.
    """
    loop = asyncio.get_running_loop()
    if until is None:
        until = loop.time() + context.settings.deadline_s
    while True:
        if failpoints.point == f"{point}.before":
            failpoints.die()
        try:
            answer = await call()
        except StoreUnavailable:
            if loop.time() + RETRY_S >= until:
                raise
            await asyncio.sleep(RETRY_S)
            continue
        if failpoints.point == f"{point}.after":
            failpoints.die()
        return answer
