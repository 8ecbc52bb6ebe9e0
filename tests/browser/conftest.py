"""A real headless Chromium, a real deployment: the tests here see what a viewer sees.

`make browser` runs them. Without a browser they are skipped, and say so. Debian: `apt-get install chromium`; another
one: DHSCHED_CHROMIUM=PATH.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop
from playwright.async_api import Browser, async_playwright

from dhsched.bench.avatar_room import FLAGS, chromium
from tests.browser.watching import Stage, stage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("NO BROWSER: the room and its page are not tested; install chromium or set DHSCHED_CHROMIUM")
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        try:
            yield launched
        finally:
            await launched.close()


@pytest.fixture
async def theatre(browser: Browser, tmp_path: Path) -> AsyncIterator[Stage]:
    """A deployment with a room and two Workers that show the test card, and a live, `demo`, on one of them."""
    async with stage(browser, tmp_path) as made:
        yield made


@pytest.fixture
async def faces(browser: Browser, tmp_path: Path) -> AsyncIterator[Stage]:
    """The same with Workers that speak."""
    async with stage(browser, tmp_path, "avatar") as made:
        yield made
