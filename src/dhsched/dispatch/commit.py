"""Choosing candidates and committing: the one place from which a live gets its next generation.

Create, reassign, recover, drain, rebalance and forced moves differ in their request and in what they do afterwards.
Each of them builds an `Intent` and calls `commit`, which asks the store and then does the same for all of them:

- it counts the outcome and every candidate that was passed over,
- it corrects the fleet view by the store's answer,
- it remembers the choice, so that `why` explains it as it was made,
- it follows the new generation, so that its phases are measured.

A commit that must wait for a boundary and was requested too early (NOT_YET) decided nothing, and leaves no trace.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from dhsched.dispatch.context import DispatchContext, Remembered, retry_unknown
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.placement import CANDIDATES_LIMIT, Choice, NoEligiblePool, PlacementRequest, Won, choose
from dhsched.types import Cause, Equals
from dhsched.web import Problem

NoFreeSlot = o.Full | o.Starting | o.Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One request to give a live its next generation.

    `choice` names the candidates; with None, no Worker may take the live, and the store removes the live from every
    waiting line. `leave` is the Worker that the live is to leave. `holder` is a Worker that holds a slot for the live
    already: it can take the live even when it is full, and the live uses no second slot there. `lives_max` limits the
    lives of the tenant, for a create; 0 is no limit.
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


def choose_candidates(context: DispatchContext, request: PlacementRequest) -> Choice:
    """Return the candidates for a request, by this replica's view; raise NO_ELIGIBLE_POOL when no Pool may serve it."""
    began = time.perf_counter()
    now = asyncio.get_running_loop().time()
    choice = choose(context.fleet.view, request, rng=context.rng, now=now, policy=context.fleet.policy)
    context.metrics.select_seconds.observe(time.perf_counter() - began)
    if isinstance(choice, NoEligiblePool):
        raise Problem(
            "NO_ELIGIBLE_POOL",
            f"{choice.reason}; give a Pool these labels, or list another Pool",
            digital_id=request.digital_id,
            excluded={pool.pool: pool.reason for pool in choice.excluded},
        )
    return choice


async def commit(context: DispatchContext, intent: Intent) -> Attempt:
    """Request the live's next generation until the store's outcome is known; then count, learn, remember, follow."""
    candidates, choice = intent.candidates, intent.choice
    pools = () if choice is None else choice.pools
    sent_rev = context.fleet.view.rev
    outcome = await retry_unknown(
        intent.point,
        partial(
            context.store.place,
            live=intent.live,
            operation=intent.operation,
            cause=intent.cause,
            expected=intent.expected,
            create=intent.create,
            candidates=candidates,
            pools=pools,
            at_boundary=intent.at_boundary,
            lives_max=intent.lives_max,
        ),
        until=context.until(),
    )
    if isinstance(outcome, o.NotYet):
        return Attempt(intent, outcome)
    took_slot = isinstance(outcome, o.Committed) and outcome.generation.worker != intent.holder
    context.fleet.learn(outcome, sent_rev=sent_rev, took_slot=took_slot)
    context.metrics.count_place(intent.cause, type(outcome).__name__)
    if isinstance(outcome, o.Committed | NoFreeSlot):
        for refusal in outcome.refusals:
            context.metrics.refusals.labels(refusal.reason).inc()
    if isinstance(outcome, o.Committed) and outcome.again:
        return Attempt(intent, outcome)  # The live was placed by an earlier try, whose choice is not known here.
    epoch, won = intent.expected, None  # A refused choice explains why the live stays in its present generation.
    if isinstance(outcome, o.Committed):
        epoch, won = outcome.generation.epoch, Won(outcome.generation.worker, outcome.load, took_slot)
        context.handoffs.follow(intent.live, epoch, intent.cause)
    if choice is not None and isinstance(outcome, o.Committed | NoFreeSlot):
        context.remember(intent.live, Remembered(choice, type(outcome).__name__, epoch, outcome.refusals, won))
    return Attempt(intent, outcome, won)
