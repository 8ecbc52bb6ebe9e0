"""Explanations and problems of lives and placements. An admin gets numbers and remedies, other callers neither."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from dhsched.dispatch.commit import Attempt, NoFreeSlot
from dhsched.dispatch.context import DispatchContext
from dhsched.errors import StoreError
from dhsched.ownership import outcomes as o
from dhsched.placement import Choice, Explanation, Refusal, Won, explain
from dhsched.placement.index import PoolView
from dhsched.web import Problem

CODES = {o.Full: "FULL", o.Starting: "STARTING", o.Waiting: "WAITING"}
SHORTLY = {
    o.Full: "all Workers that may serve the live are full; try again later, or create with wait_s",
    o.Starting: "Workers are starting as many lives as they may; try again in a moment, or create with wait_s",
    o.Waiting: "lives that lost their Worker go first; try again later, or create with wait_s",
}
"""The detail for callers that are no admin."""


def explanation_of(context: DispatchContext, attempt: Attempt) -> Explanation:
    """Return why an attempt ended as it did. The attempt's intent must have a choice."""
    assert attempt.intent.choice is not None
    refusals = attempt.outcome.refusals if isinstance(attempt.outcome, o.Committed | NoFreeSlot) else ()
    return explain_choice(context, attempt.intent.choice, refusals, attempt.won)


def explain_choice(
    context: DispatchContext, choice: Choice, refusals: tuple[o.Refusal, ...] = (), won: Won | None = None
) -> Explanation:
    told = [Refusal(refusal.worker, refusal.reason, refusal.load) for refusal in refusals]
    return explain(choice, view=context.fleet.view, refusals=told, won=won)


def too_many_lives(tenant: str, used: int, limit: int) -> Problem:
    """Return the problem for a create past the tenant's `lives_max`."""
    return Problem(
        "QUOTA",
        f"tenant {tenant} has {used} lives that have not ended, and may have {limit}; end lives, or ask an admin for a "
        "higher lives_max",
        tenant=tenant,
        quota="lives_max",
        used=used,
        limit=limit,
    )


async def no_free_slot(
    context: DispatchContext, live_id: str, attempt: Attempt, *, admin: bool, explained: bool
) -> Problem:
    """Return the problem for a create or a reassign that found no free slot. Only an admin gets the numbers and what to
    do: Pools are shared, and how full they are shows what other tenants do.

    A view that has no Worker of the Pools may be older than the Workers that filled up: it is read again first.
    """
    outcome, choice = attempt.outcome, attempt.intent.choice
    assert isinstance(outcome, NoFreeSlot) and choice is not None
    if not admin:
        digital_id, what = choice.why.request.digital_id, SHORTLY[type(outcome)]
        detail = f"no capacity for live {live_id} of DigitalID {digital_id} now: {what}"
        return Problem(CODES[type(outcome)], detail, live_id=live_id, digital_id=digital_id)
    if not any(pool.capacity for pool in _pools(context, choice).values()):
        with suppress(StoreError):
            await context.fleet.refresh()
    digital_id, pools = choice.why.request.digital_id, _pools(context, choice)
    loads = ", ".join(f"{name} {pool.load}/{pool.capacity}" for name, pool in pools.items()) or "no Workers"
    refused = f"{len(outcome.refusals)} of {len(choice.candidates)} candidate Workers refused"
    tried = f"{refused if choice.candidates else 'the store looked for one itself'} ({loads})"
    listed = ", ".join(choice.pools)
    match outcome:
        case o.Full():
            leave = attempt.intent.leave
            who = f"every Worker but {leave}" if leave else "every Worker"
            reason = "is full" if any(pool.capacity for pool in pools.values()) else "has gone or never came"
            detail = (
                f"no capacity for live {live_id}: {who} that may serve DigitalID {digital_id} {reason}; {tried}; "
                f"add Workers to Pool {listed}, make {digital_id} eligible for another Pool, or create with wait_s"
            )
        case o.Starting():
            detail = (
                f"live {live_id} must wait: the Workers of Pool {listed} that have a free slot are starting as many "
                f"lives as they may; {tried}; try again in a moment, or create with wait_s"
            )
        case o.Waiting():
            detail = (
                f"live {live_id} must wait: lives that lost their Worker wait for a free slot in Pool {listed} and go "
                f"first; {tried}; add Workers to this Pool"
            )
    numbers: dict[str, Any] = {
        "live_id": live_id,
        "digital_id": digital_id,
        "refusals": [
            {"worker": r.worker, "reason": r.reason, "load": r.load, "capacity": r.capacity} for r in outcome.refusals
        ],
        "pools": {name: {"load": pool.load, "capacity": pool.capacity} for name, pool in pools.items()},
    }
    if explained:
        numbers["explanation"] = explanation_of(context, attempt)
    return Problem(CODES[type(outcome)], detail, **numbers)


def _pools(context: DispatchContext, choice: Choice) -> dict[str, PoolView]:
    """Return the choice's Pools as the view has them now."""
    pools = context.fleet.view.pools
    return {name: pools[name] for name in choice.pools if name in pools}


def no_digital_id(digital_id: str) -> Problem:
    return Problem(
        "NOT_FOUND",
        f"DigitalID {digital_id} does not exist; put it with PUT /v1/digital-ids/{digital_id}",
        digital_id=digital_id,
    )


def ended(live_id: str) -> Problem:
    return Problem("ENDED", f"live {live_id} has ended; create another one under another id", live_id=live_id)
