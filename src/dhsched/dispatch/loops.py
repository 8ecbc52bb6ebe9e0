"""The loops that every replica runs: each is leaderless, bounded, and safe to run on all replicas at once.

A loop is a function that does one round. When two replicas do the same work, the store decides it once. Work that a
round cannot do is left for a later round, of this replica or of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import structlog

from dhsched.errors import StoreError
from dhsched.tasks import cancel

log = structlog.get_logger(__name__)

Round = Callable[[], Awaitable[None]]


@asynccontextmanager
async def running(rounds: dict[str, tuple[Round, float]], *, rng: Random) -> AsyncIterator[None]:
    """Repeat each round until the block is left, half to one and a half periods (at random) after the one before."""
    tasks = [
        asyncio.create_task(repeat(name, one, partial(rng.uniform, 0.5 * period_s, 1.5 * period_s)), name=name)
        for name, (one, period_s) in rounds.items()
    ]
    try:
        yield
    finally:
        await cancel(*tasks)


async def repeat(name: str, one: Round, pause_s: Callable[[], float]) -> None:
    """Do one round after each pause, for ever; an error is logged and ends only its round."""
    trouble = ""
    while True:
        await asyncio.sleep(pause_s())
        try:
            await one()
            trouble = ""
        except StoreError as error:
            # Log the same error once, not every round: the metrics show already that the store is away.
            if str(error) != trouble:
                log.warning("a loop cannot reach the store", loop=name, reason=str(error))
            trouble = str(error)
        except Exception:
            # Go on after any error: a loop that stops for good would be worse.
            log.exception("a round failed", loop=name)
