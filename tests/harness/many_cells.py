"""A fleet over several cells, in this process: each cell on a server of its own, or all of them on one.

Dispatch replicas are `Front`s here and controllers `InferOverCells`; Workers and what an application does are those of
every fleet (fleet.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import aiohttp

from dhsched.cells.fixed import cell_of
from dhsched.dispatch.cells.app import front_app, open_front
from dhsched.dispatch.cells.front import Front
from dhsched.dispatch.cells.served import ServedCell
from dhsched.infer.cells import InferOverCells, open_cells
from dhsched.infer.settings import InferSettings
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.settings import DispatchSettings
from dhsched.store.records.cells import NUMBERS_APART
from dhsched.store.server.embedded import Embedded
from tests.harness.fleet import OPEN, Fleet, ended, until_so
from tests.harness.keyed import bearer
from tests.harness.replicas import register
from tests.harness.servers import empty_server, server_binary

AB = ("a", "b")


class CellFleet(Fleet):
    """The deployment. `servers` has the server of each cell, in the order of the cells."""

    def __init__(self, servers: Mapping[str, Embedded], folder: Path, stack: AsyncExitStack) -> None:
        super().__init__(next(iter(servers.values())), folder, stack)
        self.servers = {**servers}
        self.names = (*servers,)
        self.fronts: list[Front] = []
        self.over_cells: list[InferOverCells] = []

    @property
    def stored(self) -> dict[str, str]:
        """The settings that say where the cells are."""
        if len({*self.servers.values()}) == 1:
            return {"store": self.store_url, "cells": " ".join(self.names)}
        return {"cells": " ".join(f"{name}={server.address.url()}" for name, server in self.servers.items())}

    async def start_dispatch(self, *, with_loops: bool = False, **given: Any) -> asyncio.Event:
        usual = {"port": 0, "refresh_min_s": 0.05, "refresh_max_s": 0.1, **OPEN, **self.stored}
        settings = DispatchSettings(**{**usual, **given})
        front = await self._stack.enter_async_context(open_front(settings, limits=self.limits, with_loops=with_loops))
        self.fronts.append(front)
        return await self.serve(front_app(front, settings), self.dispatch)

    async def start_infer(self, **given: Any) -> asyncio.Event:
        settings = InferSettings(**{"port": 0, **OPEN, **self.stored, **given})
        infer = await self._stack.enter_async_context(open_cells(settings, limits=self.limits))
        self.over_cells.append(infer)
        stop = await self.serve(infer.app, self.infer)
        announcing = asyncio.create_task(infer.announce_until(self.infer[-1], stop))
        self._stack.push_async_callback(ended, announcing)
        return stop

    async def key(self, role: str, **given: Any) -> str:
        text, _ = await self.fronts[0].ring.create(role=role, **given)
        return text

    async def mint(self, key: str, at: int = 0) -> str:
        status, made = await self.ask("POST", "/v1/tokens", {}, at=at, headers=bearer(key))
        assert status == 200, made
        return str(made["token"])

    # -- cells

    def cell(self, name: str, replica: int = 0) -> ServedCell:
        return self.fronts[replica].named(name)

    def ids(self, name: str, many: int, tenant: str = "default", start: str = "L") -> list[str]:
        """Ids of lives that fall into this cell."""
        found = (f"{start}{n:03}" for n in count() if cell_of(self.names, f"{tenant}/{start}{n:03}") == name)
        return [*islice(found, many)]

    def worker_id(self, cell: str, name: str, boot: int = 1) -> str:
        """The WorkerID of a registration in this cell, the `boot`-th one there, while no number has jumped."""
        return f"{name}#{self.names.index(cell) * NUMBERS_APART + boot}"

    async def workers(self, name: str, many: int, *, capacity: int, pool: str = "gpu", start: str = "w") -> list[str]:
        """Workers that have registered in a cell and reported once; every replica's view has them."""
        made = await register(self.cell(name).store, many, capacity=capacity, pool=pool, name=start)
        for front in self.fronts:
            await front.named(name).context.fleet.refresh()
        return made

    def kill_store(self, name: str) -> None:
        os.kill(self.servers[name].pid, signal.SIGKILL)

    async def restart_store(self, name: str) -> None:
        """Start the server of a cell again, with its data and at its address."""
        await self.servers[name].stop()
        await self.servers[name].start()

    async def until_away(self, name: str) -> None:
        """Wait until every replica and controller has lost the store of this cell."""
        reached = [*(front.named(name) for front in self.fronts), *(each._by_name[name] for each in self.over_cells)]

        async def linked() -> list[bool]:
            return [each.linked for each in reached]

        await until_so(linked, lambda found: not any(found), f"the end of all links to cell {name}")

    # -- requests

    async def ask(
        self, method: str, path: str, body: Any = None, *, at: int = 0, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Ask a replica; return status and document."""
        url = self.dispatch[at] + path
        async with self.http.request(method, url, json=body, headers=headers) as response:
            return response.status, await response.json(content_type=None) if response.status != 204 else None

    async def place(self, live_id: str = "", *, at: int = 0, query: str = "", **more: Any) -> tuple[int, Any]:
        """Ask for a live of DigitalID demo; without an id the server makes one."""
        body = {"digital_id": "demo", **({"live_id": live_id} if live_id else {}), **more}
        return await self.ask("POST", f"/v1/lives{query}", body, at=at)

    async def text(self, url: str) -> str:
        async with self.http.get(url) as response:
            return await response.text()

    async def cells_of(self, at: int = 0) -> dict[str, Any]:
        status, found = await self.ask("GET", "/v1/cells", at=at)
        assert status == 200, found
        return {each["name"]: each for each in found["cells"]}

    async def walk(self, path: str, rows: str, *, at: int = 0) -> list[Any]:
        """All rows of a list, a page after the other. `path` has a query already."""
        found, after = [], ""
        while True:
            status, page = await self.ask("GET", path + after, at=at)
            assert status == 200, page
            found += page[rows]
            if page["next"] is None:
                return found
            after = f"&after={page['next'].replace('#', '%23')}"


@asynccontextmanager
async def cell_fleet(
    folder: Path,
    *names: str,
    apart: bool = False,
    dispatch: int = 1,
    infer: int = 1,
    with_loops: bool = False,
    replica: Mapping[str, Any] | None = None,
    controller: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> AsyncIterator[CellFleet]:
    """A fleet over these cells, a and b without any; each on a server of its own with `apart`, which keeps its data."""
    async with AsyncExitStack() as stack:
        servers: dict[str, Embedded] = {}
        if apart:
            for name in names or AB:
                servers[name] = Embedded(folder / f"store-{name}", binary=server_binary("valkey"))
                stack.push_async_callback(servers[name].stop)
                await servers[name].start()
        else:
            server = await stack.enter_async_context(empty_server("valkey"))
            servers = dict.fromkeys(names or AB, server)
        made = CellFleet(servers, folder, stack)
        made.limits = limits
        made.http = await stack.enter_async_context(aiohttp.ClientSession())
        for _ in range(dispatch):
            await made.start_dispatch(with_loops=with_loops, **(replica or {}))
        for _ in range(infer):
            await made.start_infer(**(controller or {}))
        if (replica or {}).get("access") == "keys":
            await made.sign_in()
        await made.configure()
        yield made
