"""The loops that every replica runs: each leaderless, bounded, and safe to run everywhere at once.

A loop is a function that does one round. What it does twice, because another replica does it too, is decided by the
store once; what it cannot do now it leaves for the next round, here or elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import structlog

from dhsched.errors import StoreError

log = structlog.get_logger(__name__)

Round = Callable[[], Awaitable[None]]


@asynccontextmanager
async def running(rounds: dict[str, tuple[Round, float]], *, rng: Random) -> AsyncIterator[None]:
    """Run each round again and again, `period` seconds apart by chance, until the block is left."""
    tasks = [
        asyncio.create_task(_again_and_again(name, one, period_s, rng), name=name)
        for name, (one, period_s) in rounds.items()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _again_and_again(name: str, one: Round, period_s: float, rng: Random) -> None:
    trouble = ""
    while True:
        await asyncio.sleep(period_s * rng.uniform(0.5, 1.5))
        try:
            await one()
            trouble = ""
        except StoreError as error:
            # Said once, not every round: the store's own absence is in the metrics already.
            if str(error) != trouble:
                log.warning("a loop cannot reach the store", loop=name, reason=str(error))
            trouble = str(error)
        except Exception:
            # A loop that stops for good would be worse than any one error.
            log.exception("a round failed", loop=name)
