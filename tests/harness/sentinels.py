"""Primaries with replicas, and real Sentinels, for tests: on free ports, stopped even when the test fails."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from dhsched.local.ports import free_port
from dhsched.store.link.address import Address, Host
from dhsched.store.link.questions import connected, within
from dhsched.store.server.embedded import GUARDIAN, Embedded
from tests.harness.servers import running_server, server_binary

PATIENCE_S = 60.0  # Replication and Sentinels have clocks of their own; a busy machine makes them slow.
SERVICE = "main"
MASTER = ("SENTINEL", "MASTER", SERVICE)
FAST = ("INFO-PERIOD", 200, "PING-PERIOD", 100, "ASK-PERIOD", 100, "PUBLISH-PERIOD", 200, "ELECTION-TIMEOUT", 2000)


async def command(port: int, *words: str | int, password: str | None = None) -> Any:
    """The answer of the server or Sentinel at a port, whatever its role: a link would refuse a replica."""
    async with (
        asyncio.timeout(PATIENCE_S),
        connected(Host("127.0.0.1", port), None, user=None, password=password, silent_s=PATIENCE_S) as questions,
    ):
        return await questions.ask(*words)


async def facts(port: int, *words: str, password: str | None = None) -> dict[str, str]:
    """An answer of names and values by name: INFO, or SENTINEL MASTER."""
    answer = await command(port, *words, password=password)
    if isinstance(answer, list):
        return by_name(answer)
    return {name: value for line in answer.decode().splitlines() for name, _, value in [line.partition(":")] if value}


def by_name(answer: list[bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in zip(answer[::2], answer[1::2], strict=True)}


async def seen(
    port: int, words: Sequence[str], enough: Callable[[dict[str, str]], bool], *, password: str | None = None
) -> None:
    """Wait until the answer is enough; a server that does not answer yet is asked again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await within(5.0, facts(port, *words, password=password))
            if isinstance(found, dict) and enough(found):
                return
            await asyncio.sleep(0.02)


def several(*ports: int, **more: Any) -> Address:
    """The URL of several hosts on this machine."""
    first, *others = [Host("127.0.0.1", port) for port in ports]
    return Address(host=first.name, port=first.port, others=tuple(others), **more)


# -- replicas


@asynccontextmanager
async def replicated(kind: str, replicas: int, *options: str) -> AsyncIterator[list[Embedded]]:
    """A primary, and replicas that follow it."""
    extra = ["--repl-diskless-sync-delay", "0", "--repl-diskless-load", "disabled", *options]
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(running_server(kind, port=free_port(), extra=extra))
            for _ in range(1 + replicas)
        ]
        for replica in servers[1:]:
            await follow(replica, servers[0])
        await followed(servers[0], replicas)
        for replica in servers[1:]:  # The primary calls a replica online that still reads what it was sent.
            await seen(replica.port, ["INFO", "replication"], lambda info: info["master_link_status"] == "up")
        yield servers


async def follow(replica: Embedded, primary: Embedded) -> None:
    await command(replica.port, "REPLICAOF", "127.0.0.1", primary.port)


async def promote(replica: Embedded) -> None:
    await command(replica.port, "REPLICAOF", "NO", "ONE")


async def followed(primary: Embedded, count: int) -> None:
    """Wait until this many replicas are online."""
    await seen(
        primary.port,
        ["INFO", "replication"],
        lambda info: sum("state=online" in each for each in info.values()) == count,
    )


async def caught_up(replica: Embedded, primary: Embedded) -> None:
    """Wait until the replica has all that the primary has now. WAIT would count only what its own connection wrote."""
    offset = int((await facts(primary.port, "INFO", "replication"))["master_repl_offset"])
    await seen(replica.port, ["INFO", "replication"], lambda info: int(info.get("slave_repl_offset", -1)) >= offset)


def kill(server: Embedded) -> None:
    os.kill(server.pid, signal.SIGKILL)


# -- Sentinels


class Sentinel:
    """One Sentinel process that watches a primary; it ends with this process, like every server of a test."""

    def __init__(self, kind: str, folder: Path, watched: int, *, quorum: int, epoch: int, extra: Sequence[str]) -> None:
        self.port = free_port()
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {watched} {quorum}",
            f"sentinel down-after-milliseconds {SERVICE} 1000",
            f"sentinel failover-timeout {SERVICE} 2000",
            f"sentinel parallel-syncs {SERVICE} 2",
            f"sentinel config-epoch {SERVICE} {epoch}",
            *extra,
        ]
        file = folder / "sentinel.conf"
        file.write_text("\n".join(lines) + "\n")
        private = Path(tempfile.gettempdir()) / f"dhsched-{secrets.token_hex(6)}"
        arguments = [os.getpid(), private, "", 0, server_binary(kind), file, "--sentinel"]
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARDIAN, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def stop(self) -> None:
        """End the Sentinel at once, without a last word."""
        assert self._guardian.stdin is not None and self._guardian.stdout is not None
        self._guardian.stdin.close()
        self._guardian.terminate()
        self._guardian.wait(20)
        self._guardian.stdout.close()


@asynccontextmanager
async def sentinel(
    kind: str, watched: int, *, quorum: int = 1, epoch: int = 0, extra: Sequence[str] = (), password: str | None = None
) -> AsyncIterator[Sentinel]:
    """A Sentinel that answers; it watches the server at the port `watched`."""
    with tempfile.TemporaryDirectory(prefix="dhsched-sentinel-") as folder:
        lines = [*extra, *([f"requirepass {password}"] if password else [])]
        made = Sentinel(kind, Path(folder), watched, quorum=quorum, epoch=epoch, extra=lines)
        try:
            await seen(made.port, MASTER, bool, password=password)
            yield made
        finally:
            if made._guardian.poll() is None:
                made.stop()


@asynccontextmanager
async def sentinels(kind: str, watched: Embedded, *, replicas: int) -> AsyncIterator[list[Sentinel]]:
    """Three Sentinels that know each other, the primary and its replicas, and whose clocks run fast."""
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(sentinel(kind, watched.port, quorum=2)) for _ in range(3)]
        for each in made:
            await command(each.port, "SENTINEL", "DEBUG", *FAST)
        for each in made:
            await seen(each.port, MASTER, lambda found: found["num-other-sentinels"] == "2")
            await promotable(each, replicas)
        yield made


async def promotable(watching: Sentinel, replicas: int) -> None:
    """Wait until the Sentinel knows this many replicas well enough to promote any of them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = [by_name(each) for each in await command(watching.port, "SENTINEL", "REPLICAS", SERVICE)]
            if [(each["flags"], each["master-link-status"]) for each in found] == [("slave", "ok")] * replicas:
                return
            await asyncio.sleep(0.02)


def watched_by(*made: Sentinel, **more: Any) -> Address:
    """The URL of the store that these Sentinels watch."""
    return several(*(each.port for each in made), scheme="sentinel", service=SERVICE, **more)
