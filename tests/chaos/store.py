"""The store of a run: its servers, the faults of each kind of store, and the driver's own connections to it.

One fault at a time: each holds `lock`. A store is a primary with a replica, here, or a cluster (cluster.py). Faults
that take something back also tell the histories (histories.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from redis.exceptions import RedisError

from dhsched.local.pids import frozen
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
from dhsched.store.server.embedded import Embedded
from tests.chaos.histories import Histories, Lost
from tests.harness.fleet import until_so
from tests.harness.proxy import Proxy
from tests.harness.replication import Group, Member

AOF, MANIFEST = "appendonlydir", "appendonly.aof.manifest"
IN_SYNC_S = 10.0  # A replica that has not caught up by then is not promoted: that fault is simply not there.
LAST_BYTES_S = 0.3  # For what was on its way to a server when its connections were reset.
FOLLOWS_AFTER_S = 0.5

StoreKind = Literal["replicated", "cluster"]
MakeProxy = Callable[[str, int], Awaitable[Proxy]]
"""Starts a proxy with this name to this port."""


class Store(ABC):
    """What every kind of store has. `proxies` are the addresses that services have.

    All servers flush with `always`: what was answered is on disk, so a server that is killed has lost nothing
    (docs/guides/faults.md).
    """

    def __init__(self, folder: Path, make_proxy: MakeProxy) -> None:
        self.members: list[Member] = []
        self.lock = asyncio.Lock()
        self.proxies: dict[str, Proxy] = {}
        self._folder = folder
        self._make_proxy = make_proxy

    @property
    @abstractmethod
    def serving(self) -> Member:
        """The server that has the cell at the moment."""

    @property
    def server(self) -> Embedded:
        """The process of the server that has the cell."""
        return self.serving.server

    @abstractmethod
    async def start(self) -> None:
        """Start all servers, and return when services can use them."""

    @abstractmethod
    async def url_for(self, controller: str) -> str:
        """Return the URL by which this controller reaches the store through proxies."""

    @abstractmethod
    def ways_of(self, kind: str) -> list[Proxy]:
        """Return the proxies through which controllers of this kind reach the store."""

    async def stray_keys(self) -> list[str]:
        """Return what servers hold of the cell that must not, as violations. Only a cluster divides its data."""
        return []

    async def stop(self) -> None:
        await asyncio.gather(*(member.stop() for member in self.members))

    @asynccontextmanager
    async def link(self, address: Address | None = None) -> AsyncIterator[Link]:
        """A connection of the driver's own, past all proxies."""
        link = await Link.open(address or self.server.tcp_address, scripts={})
        try:
            yield link
        finally:
            await link.close()

    # -- faults that lose nothing; `name` is a server's, or `store` for the one that has the cell

    async def restart(self, name: str, *, kill: bool, down_s: float) -> None:
        async with self.lock:
            member = self._member(name)
            if kill:
                await member.kill()
            await member.server.stop()
            await asyncio.sleep(down_s)
            await member.restart()

    async def pause(self, name: str, seconds: float) -> None:
        async with self.lock:
            with frozen(self._member(name).server.pid):
                await asyncio.sleep(seconds)

    def _member(self, name: str) -> Member:
        return next((member for member in self.members if member.name == name), self.serving)

    def let_go_on(self) -> None:
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):
                if member.server.pid:
                    os.kill(member.server.pid, signal.SIGCONT)


class Replicated(Store):
    """A primary with a replica. Each controller has a proxy of its own, and all proxies lead to the primary."""

    def __init__(self, folder: Path, make_proxy: MakeProxy, histories: Histories, kind: str | None = None) -> None:
        super().__init__(folder, make_proxy)
        self.members = [Member(kind, f"store-{n}", folder, appendfsync="always") for n in (1, 2)]
        self.group = Group(self.members)
        self._histories = histories

    @property
    def serving(self) -> Member:
        return self.group.primary

    async def start(self) -> None:
        await asyncio.gather(*(member.start() for member in self.members))
        for replica in self.group.replicas:
            await replica.copy(self.group.primary)
        await self.group.in_sync()

    async def url_for(self, controller: str) -> str:
        proxy = self.proxies[controller] = await self._make_proxy(f"{controller}-to-store", self.serving.port)
        return f"redis://127.0.0.1:{proxy.port}"

    def ways_of(self, kind: str) -> list[Proxy]:
        return [proxy for name, proxy in self.proxies.items() if name.startswith(kind)]

    async def fill_disk(self, seconds: float) -> None:
        """The store's file can grow no further: what it cannot write it must refuse.

        With `always` a server that cannot write exits; with `everysec` it refuses and goes on when the
        file can grow again.
        """
        async with self.lock, self.link() as link:
            await link.call("CONFIG", "SET", "appendfsync", "everysec")
            _, hard = resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (self._file_bytes(), hard))
            try:
                await asyncio.sleep(seconds)
            finally:
                resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (hard, hard))
            for _ in range(100):
                if b"aof_last_write_status:ok" in bytes(await link.call("INFO", "persistence")):
                    break
                await asyncio.sleep(0.1)
            await link.call("CONFIG", "SET", "appendfsync", "always")

    def _file_bytes(self) -> int:
        files = (self.group.primary.folder / AOF).glob("*.incr.aof")
        return max((file.stat().st_size for file in files), default=0)

    # -- faults that take back what was told

    async def set_back(self, seconds: float, at_once: Callable[[], None] = lambda: None) -> None:
        """Kill the primary, and start it with its files as they were so many seconds before. `at_once` is done in the
        moment of the kill."""
        async with self.lock:
            primary, past = self.group.primary, self._folder / "past"
            self._histories.keep()
            copy_files(primary.folder, past)
            await asyncio.sleep(seconds)
            at_once()
            await primary.kill()
            async with self._histories.reading:
                lost = self._histories.part()
                # The end of the lost history is in the files, where nobody else reaches it.
                async with Embedded(primary.folder) as server:
                    await self._read_to_end(server.address, lost)
                await primary.forget(past)
                lost.until = time.monotonic()

    async def promote(self, seconds: float, *, divided_s: float = 0.0, stay: Sequence[str] = ()) -> None:
        """Cut replication, and promote the replica so many seconds later. The proxies lead to it from then on; those
        that `stay` go on to the old primary for `divided_s`. In the end the old primary copies the new one."""
        async with self.lock:
            old, [new] = self.group.primary, self.group.replicas
            try:
                await self._in_sync(new)
            except (TimeoutError, RedisError, OSError):
                return
            self._histories.keep()
            self.group.cut()
            await asyncio.sleep(seconds)
            await new.lead()
            self.group.primary = new
            lost = self._histories.part()
            for name, proxy in self.proxies.items():
                if name not in stay:
                    proxy.redirect(new.port)
            await asyncio.sleep(divided_s)
            for name in stay:
                self.proxies[name].redirect(new.port)
            await asyncio.sleep(LAST_BYTES_S)
            await self._read_to_end(old.server.tcp_address, lost)
            lost.until = time.monotonic()
            await asyncio.sleep(FOLLOWS_AFTER_S)
            await old.copy(new)

    async def _in_sync(self, replica: Member) -> None:
        """Wait until the replica has what the primary has, in its file too: a server that has copied everything anew
        writes a new file, and one that is killed before it is written has nothing."""
        async with asyncio.timeout(IN_SYNC_S):
            await self.group.in_sync()
            await until_so(
                lambda: replica.ask("INFO", "persistence"),
                lambda found: not found["aof_rewrite_in_progress"] and not found["aof_rewrite_scheduled"],
                "the replica's file",
            )

    async def _read_to_end(self, address: Address, lost: Lost) -> None:
        async with self.link(address) as link:
            await self._histories.read_to_end(link, lost)


def copy_files(store: Path, to: Path) -> None:
    """Copy a running server's files so that they are a beginning of its history: the list of files before the files,
    which a rewrite may replace meanwhile."""
    while True:
        shutil.rmtree(to, ignore_errors=True)
        (to / AOF).mkdir(parents=True)
        manifest = (store / AOF / MANIFEST).read_text()
        (to / AOF / MANIFEST).write_text(manifest)
        try:
            for name in re.findall(r"^file (\S+)", manifest, re.MULTILINE):
                shutil.copy(store / AOF / name, to / AOF / name)
        except FileNotFoundError:
            continue
        return
