"""The Departs of a Worker: those that come one after the other in a frame share one round trip to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dhsched.dispatch.context import DispatchContext
from dhsched.errors import DhschedError
from dhsched.links.messages import Depart, Departed
from dhsched.ownership import outcomes as o
from dhsched.types import clean_reason


async def record_departs(
    context: DispatchContext, worker: str, departs: Sequence[Depart], confirm: Callable[[Departed], None]
) -> None:
    """Record each Depart in the store, and confirm it. Raise the first error after the other Departs are confirmed: the
    Worker repeats a Depart without confirmation. Nothing behind an invalid Depart is recorded."""
    steps: list[Awaitable[o.DepartOutcome]] = []
    failed: BaseException | None = None
    try:
        for said in departs:
            reason = clean_reason(said.reason)
            steps.append(context.store.depart(worker=worker, live=said.live, number=said.number, reason=reason))
    except DhschedError as error:
        failed = error
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    for said, outcome in zip(departs, outcomes, strict=False):
        if isinstance(outcome, BaseException):
            failed = failed or outcome
            continue
        reason = clean_reason(said.reason)
        if reason and isinstance(outcome, o.Departed) and outcome.was != "departing":
            context.events.say(
                "live_crashed", live=said.live, worker=worker, epoch=said.number, was=outcome.was, reason=reason
            )
        confirm(Departed(said.live, said.number))
    if failed is not None:
        raise failed
