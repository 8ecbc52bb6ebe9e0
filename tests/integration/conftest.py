"""Fixtures over real servers: every test that asks for one runs with Valkey and with Redis."""

from collections.abc import AsyncIterator

import pytest
from tests.servers import SERVERS, running_server, server_binary

from dhsched.store.address import Address


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which server; a test that needs one with options of its own starts it with `running_server(kind, ...)`."""
    name: str = request.param
    server_binary(name)
    return name


@pytest.fixture
async def server(kind: str) -> AsyncIterator[Address]:
    """The address of a fresh, empty server."""
    async with running_server(kind) as running:
        yield running.address
