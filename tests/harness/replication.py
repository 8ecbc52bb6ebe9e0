"""Store servers that copy each other: a primary with replicas, promoted, cut off, killed and set back by a test.

Each server copies through a proxy of its own, so that replication can be cut without a word to either side. Services
reach the store through a `Front`: one address for ever, and another server behind it when the test says so, as with a
virtual IP address or a DNS name.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from dhsched.local.ports import free_port
from dhsched.store.server.embedded import Embedded, Fsync
from tests.harness.fleet import until_so
from tests.harness.proxy import Proxy
from tests.harness.servers import ask, server_binary

OPTIONS = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


class Front(Proxy):
    """The address of a store, which stays when another server takes the place of the one behind it."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def lead_to(self, member: Member) -> None:
        self.redirect(member.port)

    def close_off(self) -> None:
        """Reset all connections and refuse new ones, until `open_up`."""
        self.refusing = True
        self.cut(lambda: True)

    def open_up(self) -> None:
        self.refusing = False


class Member:
    """One server of a group, with its files in a folder of its own, on one port for ever. Without a kind, the server
    is the one that dhsched prefers."""

    options: Sequence[str] = OPTIONS

    def __init__(self, kind: str | None, name: str, folder: Path, appendfsync: Fsync = "everysec") -> None:
        self.name = name
        self.port = free_port()
        self.folder = folder / name
        self.upstream = Front(f"{name}-upstream", 0)
        """The way to the server that this one copies."""
        self.running = False
        self.copies: Member | None = None
        self._binary = server_binary(kind) if kind else None
        self._appendfsync = appendfsync
        self.server = self._made()

    def _made(self) -> Embedded:
        return Embedded(
            self.folder,
            appendfsync=self._appendfsync,
            binary=self._binary,
            port=self.port,
            extra=self.options,
        )

    async def start(self) -> None:
        await self.upstream.start()
        await self.server.start()
        self.running = True

    async def stop(self) -> None:
        """End the server at once: one that was asked to would wait for its replicas, or for its first file."""
        await self.kill()
        await self.upstream.stop()

    async def ask(self, *words: str | int) -> Any:
        return await ask(self.port, *words)

    async def replication(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask("INFO", "replication")
        return found

    async def offset(self) -> int:
        """How much this server has written, or copied, of the common history."""
        found = await self.replication()
        return int(found["master_repl_offset" if found["role"] == "master" else "slave_repl_offset"])

    async def copy(self, primary: Member) -> None:
        """Follow this primary from now on; what only this server has is lost."""
        self.upstream.open_up()
        self.upstream.lead_to(primary)
        await self.ask("REPLICAOF", "127.0.0.1", self.upstream.port)
        self.copies = primary

    async def lead(self) -> None:
        """Be a primary from now on."""
        await self.ask("REPLICAOF", "NO", "ONE")
        self.copies = None

    # -- the process and its files

    async def kill(self) -> None:
        """Kill the server with `kill -9`, and wait until it is gone. One that is gone already is no error."""
        if self.running:
            os.kill(self.server.pid, signal.SIGKILL)
            self.running = False
        await self.server.stop()

    async def restart(self) -> None:
        """Start a server that was killed, as a primary, with what is on its disk."""
        self.copies = None
        self.server = self._made()
        await self.server.start()
        self.running = True

    def remember(self) -> Path:
        """Copy the server's files as they are, which have everything that was answered; for `forget`."""
        past = self.folder.with_name(f"{self.folder.name}-past")
        shutil.rmtree(past, ignore_errors=True)
        shutil.copytree(self.folder, past, ignore=shutil.ignore_patterns("*.lock", "server.log"))
        return past

    async def forget(self, past: Path) -> None:
        """Kill the server, put the older files back, and start it where it was: a power cut, or a restored backup."""
        await self.kill()
        shutil.rmtree(self.folder)
        shutil.copytree(past, self.folder)
        await self.restart()


class Group:
    """A primary and its replicas."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.primary = members[0]

    @property
    def replicas(self) -> list[Member]:
        return [each for each in self.members if each is not self.primary]

    async def in_sync(self) -> None:
        """Wait until every replica that copies the primary has what the primary has now."""
        offset = await self.primary.offset()
        for replica in [each for each in self.replicas if each.copies is self.primary]:
            await until_so(
                replica.replication,
                lambda found: found.get("master_link_status") == "up" and found["slave_repl_offset"] >= offset,
                f"{replica.name} to have {offset} bytes",
            )

    def cut(self, *replicas: Member) -> None:
        """Let nothing more through to these replicas (all, if none is named): from now on they miss what is written."""
        for replica in replicas or self.replicas:
            replica.upstream.close_off()

    async def promote(self, member: Member) -> None:
        """Make this replica the primary; the other replicas follow it, and are in sync with it. The primary before is
        left as it is."""
        before, self.primary = self.primary, member
        await member.lead()
        for replica in self.replicas:
            if replica is not before:
                await replica.copy(member)
        await self.in_sync()

    async def demote_for_a_moment(self, replica: Member) -> None:
        """Promote this replica, let the primary copy it, and make the primary a primary again."""
        before = self.primary
        await self.promote(replica)
        await before.copy(replica)
        await self.in_sync()
        await self.promote(before)
        await replica.copy(before)


@asynccontextmanager
async def replicated(kind: str, folder: Path, replicas: int = 1) -> AsyncIterator[Group]:
    """A primary with replicas that are in sync."""
    async with AsyncExitStack() as stack:
        members = [Member(kind, f"store-{n}", folder) for n in range(replicas + 1)]
        for member in members:
            stack.push_async_callback(member.stop)
        await asyncio.gather(*(member.start() for member in members))
        group = Group(members)
        for replica in group.replicas:
            await replica.copy(group.primary)
        await group.in_sync()
        yield group
