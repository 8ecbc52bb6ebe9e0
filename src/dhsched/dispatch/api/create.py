"""Creating a live: choose by the view, let the store decide, wait for a slot if requested (paper, algorithm 1).

The common path is one round trip to the store.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dhsched.dispatch.commit import Attempt, Intent, NoFreeSlot, choose_candidates, commit
from dhsched.dispatch.context import DispatchContext
from dhsched.ownership.steps.place import Create
from dhsched.placement import PlacementRequest
from dhsched.web import Problem, Request


async def place_new_for(
    asked: Request, context: DispatchContext, *, request: PlacementRequest, **given: Any
) -> Attempt:
    """Call `place_new` for an HTTP request; a caller that is no admin gets refusals without the names of Pools."""
    try:
        return await place_new(context, asked, request=request, **given)
    except Problem as problem:
        if problem.code != "NO_ELIGIBLE_POOL" or asked.caller.admin:
            raise
        detail = f"no Pool may serve DigitalID {request.digital_id}; ask an admin of this deployment"
        raise Problem(problem.code, detail, digital_id=request.digital_id) from None


async def place_new(
    context: DispatchContext,
    asked: Request,
    *,
    live: str,
    operation: str,
    create: Create,
    request: PlacementRequest,
    wait_s: float,
) -> Attempt:
    """Request the first generation of a new live, and wait up to `wait_s` for a free slot; return the last attempt.

    Raise OverQuota when the tenant has as many creates that wait as it may.
    """
    refuse_when_store_is_full(context)

    async def attempt() -> Attempt:
        intent = Intent(
            live=live,
            cause="create",
            point="create",
            operation=operation,
            choice=choose_candidates(context, request),
            create=create,
            lives_max=context.service.quotas.limits_of(asked.caller.tenant).lives_max,
        )
        return await commit(context, intent)

    made = await attempt()
    if not isinstance(made.outcome, NoFreeSlot) or wait_s <= 0 or context.create_queue.full:
        return made
    loop = asyncio.get_running_loop()
    give_up = loop.time() + min(wait_s, context.settings.wait_max_s)
    waiting = context.service.quotas.hold("waiting", asked.caller.tenant)
    with waiting, context.service.load.parked(asked.caller), context.create_queue.place() as turn:
        while isinstance(made.outcome, NoFreeSlot):
            left_s = give_up - loop.time()
            # A caller that disconnected would never learn of the live: create none for it.
            if left_s <= 0 or context.service.stopping or hung_up(asked):
                break
            turn.clear()
            try:
                async with asyncio.timeout(min(left_s, context.settings.wait_retry_s)):
                    await turn.wait()
            except TimeoutError:
                pass
            made = await attempt()
    return made


def refuse_when_store_is_full(context: DispatchContext) -> None:
    """Raise STORE_FULL past `memory_max`: existing lives need the rest of the store's memory to move and to end."""
    share = context.fleet.memory_share
    if share >= context.settings.memory_max:
        raise Problem(
            "STORE_FULL",
            f"the store has used {share:.0%} of its memory; past {context.settings.memory_max:.0%} no lives are "
            "created; end lives, or give the store more memory",
            memory_share=round(share, 3),
        )


def hung_up(asked: Request) -> bool:
    transport = asked.request.transport
    return transport is None or transport.is_closing()
