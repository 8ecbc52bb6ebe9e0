"""Fixtures over real servers: every test that asks for one runs with Valkey and with Redis.

Here the event loop is uvloop, as in the product; the unit tests run on asyncio's own.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable

import pytest
import structlog
import uvloop

from dhsched.store.address import Address
from tests.servers import SERVERS, running_server, server_binary

# Replicas that run in the test's own process must not write into what a command prints.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


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
