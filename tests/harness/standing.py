"""A deployment of processes whose parts are stopped and started."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from dhsched.local.ports import free_port
from dhsched.local.process import Process
from dhsched.store.link.address import Address
from dhsched.store.server.embedded import Embedded
from tests.harness.fleet import Fleet, Record, until_so
from tests.harness.replicas import replicas
from tests.harness.servers import server_binary


class Standing(Fleet):
    """A fleet whose Dispatch replicas are processes, and whose store can be restarted where it is."""

    processes: list[Process]
    record: Record

    @property
    def address(self) -> Address:
        return self.server.tcp_address

    async def restart_store(self) -> None:
        await self.server.stop()
        self.server = Embedded(self.folder / "store", binary=server_binary("valkey"), port=self.server.port)
        await self.server.start()

    def append_only_file(self) -> Path:
        return max((self.folder / "store" / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)

    async def cut_power(self, size_bytes: int) -> None:
        """Kill the store and start it with the first `size_bytes` of its last append-only file."""
        os.kill(self.server.pid, signal.SIGKILL)
        await self.server.stop()
        with self.append_only_file().open("r+b") as file:
            file.truncate(size_bytes)
        await self.restart_store()

    async def lives(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        after = ""
        while True:
            page = await self.get(f"/v1/lives?limit=1000{after}")
            found |= {live["live_id"]: live for live in page["lives"]}
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"

    async def beats(self) -> dict[str, int]:
        return {row["worker"]: row["beat"] for row in (await self.get("/v1/workers"))["workers"]}


@asynccontextmanager
async def standing(folder: Path, *, workers: int, lives: int, ttl_s: float) -> AsyncIterator[Standing]:
    async with AsyncExitStack() as stack:
        server = Embedded(folder / "store", binary=server_binary("valkey"), port=free_port())
        await server.start()
        f = Standing(server, folder, stack)
        stack.push_async_callback(lambda: f.server.stop())
        started = replicas(f.address, "d1", "d2", DHSCHED_DISPATCH_WORKER_TTL_S=str(ttl_s))
        f.processes = await stack.enter_async_context(started)
        f.dispatch = [replica.url for replica in f.processes]
        f.http = await stack.enter_async_context(aiohttp.ClientSession())
        f.record = Record()
        await f.start_infer()
        await f.configure()
        for n in range(workers):
            await f.start_worker(f.record, f"w{n}", capacity=lives)
        await until_so(f.beats, lambda found: len(found) == workers, f"{workers} Workers")
        for n in range(lives):
            await f.create(f"L{n}")
        await until_so(
            f.lives, lambda found: all(live["claimed"] for live in found.values()), "every live to be claimed"
        )
        yield f
