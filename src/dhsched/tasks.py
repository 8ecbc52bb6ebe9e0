"""How tasks are ended by what has started them, and how a task waits for events and other tasks, but not forever."""

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


async def first(
    *events: asyncio.Event, tasks: tuple[asyncio.Future[Any], ...] = (), within_s: float | None = None
) -> None:
    """Wait until one of the events is set, one of the tasks is done, or the time is over."""
    waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait([*waiting, *tasks], timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(*waiting)
