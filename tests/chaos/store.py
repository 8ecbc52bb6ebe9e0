"""The store of a run: a primary with a replica, what is done to them, and the driver's own way to them.

One fault at a time: each holds `lock`. Those that take something back also tell the histories (histories.py).
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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from redis.exceptions import RedisError

from dhsched.local.pids import frozen
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
from dhsched.store.server.embedded import Embedded
from tests.chaos.histories import Histories, Lost
from tests.chaos.proxy import Proxy
from tests.harness.fleet import until_so
from tests.harness.replication import Group, Member

AOF, MANIFEST = "appendonlydir", "appendonly.aof.manifest"
IN_SYNC_S = 10.0  # A replica that has not caught up by then is not promoted: that fault is simply not there.
LAST_BYTES_S = 0.3  # For what was on its way to a server when its connections were reset.
FOLLOWS_AFTER_S = 0.5


class Store:
    """See the module. `proxies` are the addresses that services have, all of which lead to the primary."""

    def __init__(self, folder: Path, histories: Histories) -> None:
        # `always`: what was answered is on disk, so a store that is killed has lost nothing (docs/guides/faults.md).
        self.group = Group([Member(None, f"store-{n}", folder, appendfsync="always") for n in (1, 2)])
        self.lock = asyncio.Lock()
        self.proxies: dict[str, Proxy] = {}
        self._folder = folder
        self._histories = histories

    @property
    def server(self) -> Embedded:
        """The primary's process of the moment."""
        return self.group.primary.server

    async def start(self) -> None:
        await asyncio.gather(*(member.start() for member in self.group.members))
        for replica in self.group.replicas:
            await replica.copy(self.group.primary)
        await self.group.in_sync()

    async def stop(self) -> None:
        await asyncio.gather(*(member.stop() for member in self.group.members))

    @asynccontextmanager
    async def link(self, address: Address | None = None) -> AsyncIterator[Link]:
        """A connection of the driver's own, past all proxies."""
        link = await Link.open(address or self.server.tcp_address, scripts={})
        try:
            yield link
        finally:
            await link.close()

    # -- faults that lose nothing

    async def restart(self, *, kill: bool, down_s: float) -> None:
        async with self.lock:
            if kill:
                await self.group.primary.kill()
            await self.server.stop()
            await asyncio.sleep(down_s)
            await self.group.primary.restart()

    async def pause(self, seconds: float) -> None:
        async with self.lock:
            with frozen(self.server.pid):
                await asyncio.sleep(seconds)

    async def fill_disk(self, seconds: float) -> None:
        """The store's file can grow no further: what it cannot write it must refuse.

        With `always` a server that cannot write exits; with `everysec` it refuses and goes on when there is a free slot
        again.
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

    def let_go_on(self) -> None:
        for member in self.group.members:
            with contextlib.suppress(ProcessLookupError):
                if member.server.pid:
                    os.kill(member.server.pid, signal.SIGCONT)


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
