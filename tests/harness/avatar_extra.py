"""What tests of the avatar share. They need its extra; without it they are skipped, and say so."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable

import pytest

from dhsched.worker.runtimes import AVATAR_NEEDS

WAIT_S = 60.0


def require_avatar() -> None:
    missing = [module for module in AVATAR_NEEDS if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"NOT TESTED: {', '.join(missing)} missing; pip install 'dhsched[avatar]'", allow_module_level=True)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what another task brings about, without a fixed time to wait."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
