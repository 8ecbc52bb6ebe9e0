"""Recovery: take what is due on the agenda, look, and place anew what needs it (paper, 6.1 and 7.5).

`look` decides; this loop only carries it out. A replica that dies after it was told leaves the live on the agenda,
whose score is the lease: another one is told when it runs out. The live's Worker cannot help and is not asked.
"""

from __future__ import annotations

import asyncio

import structlog
from msgspec import structs

from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.place import place_once
from dhsched.ownership import outcomes as o
from dhsched.web import Problem

log = structlog.get_logger(__name__)

DUE_MAX = 256  # Lives taken from the agenda in one round.
AT_ONCE = 32  # Lives worked on at the same time.
HERE_FIRST = ("vacant", "floor")
"""Reasons for which the Worker itself is well: it has what the live needs, so it is asked first."""


class Recovery:
    """The loop of one replica."""

    def __init__(self, context: DispatchContext) -> None:
        self._context = context
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def round(self) -> None:
        lives = await self._context.reads.due(DUE_MAX)
        # Every replica reads the same list; in an order of its own, each meets others' leases less often.
        self._context.rng.shuffle(lives)
        await asyncio.gather(*(self.look(live) for live in lives))

    async def look(self, live: str) -> None:
        """Look at one live, and do what it needs."""
        async with self._turns:
            outcome = await self._context.store.look(live=live)
            self._context.metrics.looks.labels(type(outcome).__name__).inc()
            if isinstance(outcome, o.Recover):
                await self.recover(live, outcome)

    async def recover(self, live: str, work: o.Recover) -> o.PlaceOutcome | None:
        """Move one live off a Worker that cannot help, or back onto it where only its runtime is gone."""
        context = self._context
        request = await context.fleet.request(work.digital_id)
        if request is None:
            log.warning("a live's DigitalID is gone, and with it its Pools", live=live, digital_id=work.digital_id)
            return None
        here_first = work.why in HERE_FIRST
        asking = structs.replace(
            request, first=work.worker if here_first else None, last=None if here_first else work.worker
        )
        try:
            attempt = await place_once(
                context,
                point="recover",
                live=live,
                because="recover",
                operation=context.operation(),
                request=asking,
                expected=work.epoch,
                also=work.worker,
            )
        except Problem as problem:
            log.warning("no Pool may serve a live that lost its Worker", live=live, why=problem.detail)
            return None
        match attempt.outcome:
            case o.Committed(generation=generation):
                log.info("live recovered", live=live, why=work.why, source=work.worker, generation=str(generation))
            case o.Full() | o.Starting() if work.tries == 1:
                log.warning("a live that lost its Worker waits for room", live=live, why=work.why, source=work.worker)
            case _:
                pass  # Somebody else was faster, or the reason is gone: the agenda has what is left to do.
        return attempt.outcome
