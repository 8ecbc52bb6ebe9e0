"""Polling: wait until a function returns something true."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

from dhsched.errors import DhschedError


async def until(condition: Callable[[], Any], what: str, wait_s: float, *, every_s: float = 0.1) -> Any:
    """Call `condition` every `every_s`, awaiting its result, until the result is true; return the result. After
    `wait_s` raise an error that names `what`."""
    give_up = time.monotonic() + wait_s
    while True:
        found = condition()
        found = await found if inspect.isawaitable(found) else found
        if found:
            return found
        if time.monotonic() > give_up:
            raise DhschedError(f"waited {wait_s:g} s for {what}")
        await asyncio.sleep(every_s)
