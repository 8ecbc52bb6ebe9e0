"""Rooms of LiveKit, with its real SDK on our side. `make livekit` runs these tests; without the extra they are skipped.

The server is the stand-in of tests/harness/livekit_server.py. With LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET
it is the server at that address: every test has rooms of its own.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INSTALLED = importlib.util.find_spec("livekit") is not None
collect_ignore_glob = [] if INSTALLED else ["test_*.py"]

if INSTALLED:
    from tests.harness.livekit_browser import Viewer, browsing, missing
    from tests.harness.livekit_client import Server
    from tests.harness.livekit_rig import found_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.livekit)


@pytest.fixture
async def livekit() -> AsyncIterator[Server]:
    async with found_server() as server:
        yield server


@pytest.fixture
async def viewer(livekit: Server) -> AsyncIterator[Viewer]:
    """LiveKit-client in Chromium, in the room."""
    if text := missing():
        assert not os.environ.get("CI"), text
        pytest.skip(text)
    async with browsing(livekit) as made:
        yield made
