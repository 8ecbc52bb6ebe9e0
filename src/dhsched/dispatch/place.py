"""Placing: choose by the view, let the store decide, learn from what it says (paper, algorithm 1).

On the common path this is one round trip. What the store refuses becomes a problem that says what was tried and what
to do about it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from dhsched.dispatch.commit import Attempt, Intent, NoRoom, commit
from dhsched.dispatch.context import DispatchContext
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.placement import (
    Choice,
    Explanation,
    NoEligiblePool,
    PlacementRequest,
    Refusal,
    Won,
    choose,
    explain,
)
from dhsched.web import Asked, Problem

CODES = {o.Full: "FULL", o.Starting: "STARTING", o.Waiting: "WAITING"}
SHORTLY = {
    o.Full: "all Workers that may serve it are full; try again later, or create with wait_s",
    o.Starting: "Workers are starting as many lives as they may; try again in a moment, or create with wait_s",
    o.Waiting: "lives that lost their Worker go first; try again later, or create with wait_s",
}
"""What an app is told."""


async def place_new_for(asked: Asked, context: DispatchContext, *, request: PlacementRequest, **given: Any) -> Attempt:
    """`place_new`, whose refusals name Pools to an admin only."""
    try:
        return await place_new(context, asked, request=request, **given)
    except Problem as problem:
        if problem.code != "NO_ELIGIBLE_POOL" or asked.caller.admin:
            raise
        why = f"no Pool may serve DigitalID {request.digital_id}; tell whoever runs this deployment"
        raise Problem(problem.code, why, digital_id=request.digital_id) from None


async def place_new(
    context: DispatchContext, asked: Asked, *, live: str, create: Create, request: PlacementRequest, wait_s: float
) -> Attempt:
    """Give a new live its first generation, waiting for room up to `wait_s`."""
    refuse_when_store_is_full(context)
    operation = context.operation()

    async def attempt() -> Attempt:
        choice = choose_candidates(context, request)
        return await commit(
            context,
            Intent(live=live, cause="create", point="create", operation=operation, choice=choice, create=create),
        )

    made = await attempt()
    if not isinstance(made.outcome, NoRoom) or wait_s <= 0 or context.line.full:
        return made
    loop = asyncio.get_running_loop()
    give_up = loop.time() + min(wait_s, context.settings.wait_max_s)
    with context.service.parked(), context.line.place() as turn:
        while isinstance(made.outcome, NoRoom):
            left_s = give_up - loop.time()
            # A caller that hung up must not be given a live that it will never hear of.
            if left_s <= 0 or context.service.stopping or hung_up(asked):
                break
            turn.clear()
            try:
                async with asyncio.timeout(min(left_s, context.settings.wait_look_s)):
                    await turn.wait()
            except TimeoutError:
                pass
            made = await attempt()
    return made


def choose_candidates(context: DispatchContext, request: PlacementRequest) -> Choice:
    began = time.perf_counter()
    now = asyncio.get_running_loop().time()
    choice = choose(context.fleet.view, request, rng=context.rng, now=now, policy=context.fleet.policy)
    context.metrics.select_seconds.observe(time.perf_counter() - began)
    if isinstance(choice, NoEligiblePool):
        raise Problem(
            "NO_ELIGIBLE_POOL",
            f"{choice.reason}; give a Pool these labels, or list another Pool",
            digital_id=request.digital_id,
            excluded={pool.pool: pool.why for pool in choice.excluded},
        )
    return choice


def explanation_of(context: DispatchContext, attempt: Attempt) -> Explanation:
    """Why an attempt ended as it did. It must have had a choice."""
    assert attempt.intent.choice is not None
    refusals = attempt.outcome.refusals if isinstance(attempt.outcome, o.Committed | NoRoom) else ()
    return explain_choice(context, attempt.intent.choice, refusals, attempt.won)


def explain_choice(
    context: DispatchContext, choice: Choice, refusals: tuple[o.Refusal, ...] = (), won: Won | None = None
) -> Explanation:
    told = [Refusal(refusal.worker, refusal.why, refusal.load) for refusal in refusals]
    return explain(choice, view=context.fleet.view, refusals=told, won=won)


def no_room(context: DispatchContext, live_id: str, attempt: Attempt, *, admin: bool, explained: bool) -> Problem:
    """The problem for a create or a reassign that found no room: for an admin with the numbers and what to do; for
    others without, because Pools are shared, and how full they are is what other tenants do."""
    outcome, choice = attempt.outcome, attempt.intent.choice
    assert isinstance(outcome, NoRoom) and choice is not None
    if not admin:
        digital_id, what = choice.why.request.digital_id, SHORTLY[type(outcome)]
        detail = f"no capacity for live {live_id} of DigitalID {digital_id} now: {what}"
        return Problem(CODES[type(outcome)], detail, live_id=live_id, digital_id=digital_id)
    view, digital_id = context.fleet.view, choice.why.request.digital_id
    pools = {name: view.pools[name] for name in choice.pools if name in view.pools}
    loads = ", ".join(f"{name} {pool.load}/{pool.capacity}" for name, pool in pools.items()) or "no Workers"
    refused = f"{len(outcome.refusals)} of {len(choice.candidates)} candidate Workers refused"
    tried = f"{refused if choice.candidates else 'the store looked for one itself'} ({loads})"
    listed = ", ".join(choice.pools)
    match outcome:
        case o.Full():
            leave = attempt.intent.leave
            who = f"every Worker but {leave}" if leave else "every Worker"
            why = "is full" if any(pool.capacity for pool in pools.values()) else "has gone or never came"
            detail = (
                f"no capacity for live {live_id}: {who} that may serve DigitalID {digital_id} {why}; {tried}; "
                f"add Workers to Pool {listed}, make {digital_id} eligible for another Pool, or create with wait_s"
            )
        case o.Starting():
            detail = (
                f"live {live_id} must wait: the Workers of Pool {listed} that have room are starting as many lives as "
                f"they may; {tried}; try again in a moment, or create with wait_s"
            )
        case o.Waiting():
            detail = (
                f"live {live_id} must wait: lives that lost their Worker wait for room in Pool {listed} and go first; "
                f"{tried}; add Workers to it"
            )
    numbers: dict[str, Any] = {
        "live_id": live_id,
        "digital_id": digital_id,
        "refusals": [
            {"worker": r.worker, "why": r.why, "load": r.load, "capacity": r.capacity} for r in outcome.refusals
        ],
        "pools": {name: {"load": pool.load, "capacity": pool.capacity} for name, pool in pools.items()},
    }
    if explained:
        numbers["explanation"] = explanation_of(context, attempt)
    return Problem(CODES[type(outcome)], detail, **numbers)


def refuse_when_store_is_full(context: DispatchContext) -> None:
    """What is left of the store's memory belongs to the lives that exist: they must be able to move and to end."""
    share = context.fleet.memory_share
    if share >= context.settings.memory_max:
        raise Problem(
            "STORE_FULL",
            f"the store has used {share:.0%} of its memory, and past {context.settings.memory_max:.0%} no lives are "
            "created; end lives, or give the store more memory",
            memory_share=round(share, 3),
        )


def hung_up(asked: Asked) -> bool:
    transport = asked.request.transport
    return transport is None or transport.is_closing()
