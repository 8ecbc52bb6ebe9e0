"""Fixtures over real servers: every test that asks for one runs with Valkey and with Redis.

Here the event loop is uvloop, as in the product; the unit tests run on asyncio's own.
"""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dhsched.store.link.address import Address
from tests.harness.on_uvloop import end_from_a_thread, log_plainly, loop_factories
from tests.harness.servers import empty_server, kind

__all__ = ["kind"]

log_plainly()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return loop_factories()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    end_from_a_thread(items, Path(__file__).parent)


@pytest.fixture
async def server(kind: str) -> AsyncIterator[Address]:
    """The address of a fresh, empty server."""
    async with empty_server(kind) as running:
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
