"""The choice of candidates by what this replica believes of the fleet."""

from __future__ import annotations

import asyncio
import time

from dhsched.dispatch.context import DispatchContext
from dhsched.placement import Choice, NoEligiblePool, PlacementRequest, choose
from dhsched.web import Problem


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
            excluded={pool.pool: pool.reason for pool in choice.excluded},
        )
    return choice
