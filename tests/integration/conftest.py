"""Fixtures over real servers: every test that asks for one runs with Valkey and, most of them with the release, with
Redis.

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

HERE = Path(__file__).parent
ON_BOTH = ("test_link", "test_store", "test_slot", "test_homes", "test_power", "test_settling")
"""Tests of the store itself: `make test` runs them on both servers, as it does the conformance tests."""

log_plainly()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return loop_factories()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is not about the store says the same of both servers: on the second one it runs with the release."""
    end_from_a_thread(items, HERE)
    for item in items:
        on = getattr(item, "callspec", None)
        about_the_store = item.path.parent != HERE or item.path.name.startswith(ON_BOTH)
        if on and "redis" in on.params.values() and not about_the_store and not item.get_closest_marker("long"):
            item.add_marker(pytest.mark.release)


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
