"""Fixtures over real servers: every test that asks for one runs with Valkey and with Redis.

Here the event loop is uvloop, as in the product; the unit tests run on asyncio's own.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import structlog
import uvloop

from dhsched.store.link.address import Address
from tests.harness.servers import SERVERS, running_server, server_binary

# Replicas that run in the test's own process must not write into what a command prints. Tracebacks are plain, as in the
# product: the default draws every frame's locals, which holds up the event loop, and with it every deadline in the
# test, for as long as a busy machine needs for that.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ],
    logger_factory=structlog.PrintLoggerFactory(sys.stderr),
)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that hangs is ended from a thread, with its process: uvloop drops what a signal's handler raises."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(method="thread"))


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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with cert.pem, which signed itself and is therefore its own authority, and key.pem."""
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: TLS, because there is no openssl binary to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=store -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
    subprocess.run([*make.split(), *files], check=True, capture_output=True)
    return folder
