"""What tests of the store link share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dhsched.store.link.link import LinkSettings

PATIENT = LinkSettings(connect_s=60)
ONE_ATTEMPT = LinkSettings(connect_s=60, backoff_first_s=1_000, backoff_max_s=1_000)
"""The wait for a second attempt would go past `connect_s`, so the error of the first attempt is raised at once."""


async def eventually(condition: Callable[[], object], within_s: float = 60) -> None:
    """Wait for what another task brings about."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  # It may depend on anything.
            await asyncio.sleep(0.005)
