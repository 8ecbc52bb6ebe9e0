"""How tasks are ended by what has started them, and how a task waits for an event, but not forever."""

import asyncio
from typing import Any


async def cancel(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel the tasks and wait until each has ended, however it ends. None is a task that was not started."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


async def is_set_within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for the event; return False if it was not set in this time."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
