"""A small cluster for tests: two primaries and the slot of one cell, which is moved between them the classic way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from dhsched.local.ports import free_port
from dhsched.store.keys import Keys
from dhsched.store.link.cluster import SLOTS, key_slot
from dhsched.store.link.link import Link
from dhsched.store.server.embedded import Embedded
from tests.harness.servers import running_server

KEYS = Keys("main")
CELL = KEYS.cell
SLOT = key_slot(CELL)
OPTIONS = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
MIGRATE_MS = 5_000


@asynccontextmanager
async def node(kind: str) -> AsyncIterator[Embedded]:
    async with running_server(kind, port=free_port(), extra=OPTIONS) as server:
        yield server


async def healthy(*admins: Link) -> None:
    """Wait until the nodes serve, and all of them know who serves our slot."""
    async with asyncio.timeout(20):
        for admin in admins:
            while b"cluster_state:ok" not in await admin.call("CLUSTER", "INFO"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Primary:
    """One node, with a link that talks to this node whatever it owns."""

    server: Embedded
    admin: Link

    async def id(self) -> bytes:
        found: bytes = await self.admin.call("CLUSTER", "MYID")
        return found

    async def keys(self, limit: int = 1_000) -> list[bytes]:
        """The cell's keys that this node holds."""
        found: list[bytes] = await self.admin.call("CLUSTER", "GETKEYSINSLOT", SLOT, limit)
        return found


@asynccontextmanager
async def two_primaries(kind: str) -> AsyncIterator[tuple[Primary, Primary]]:
    """Two nodes that know each other; the left one owns the cell's slot."""
    async with AsyncExitStack() as stack:
        nodes = []
        for _ in range(2):
            server = await stack.enter_async_context(node(kind))
            admin = await stack.enter_async_context(await Link.open(server.tcp_address, {}))
            nodes.append(Primary(server, admin))
        left, right = nodes
        await left.admin.call("CLUSTER", "ADDSLOTSRANGE", 0, SLOT)
        await right.admin.call("CLUSTER", "ADDSLOTSRANGE", SLOT + 1, SLOTS - 1)
        await right.admin.call("CLUSTER", "MEET", "127.0.0.1", left.server.port)
        await healthy(left.admin, right.admin)
        yield left, right


async def begin_move(source: Primary, target: Primary) -> None:
    await target.admin.call("CLUSTER", "SETSLOT", SLOT, "IMPORTING", await source.id())
    await source.admin.call("CLUSTER", "SETSLOT", SLOT, "MIGRATING", await target.id())


async def move_key(source: Primary, target: Primary, key: bytes | str) -> None:
    await source.admin.call("MIGRATE", "127.0.0.1", target.server.port, key, 0, MIGRATE_MS, deadline_s=10)


async def end_move(source: Primary, target: Primary) -> None:
    target_id = await target.id()
    await target.admin.call("CLUSTER", "SETSLOT", SLOT, "NODE", target_id)
    await source.admin.call("CLUSTER", "SETSLOT", SLOT, "NODE", target_id)


async def move_slot(source: Primary, target: Primary, *, between_keys_s: float = 0.0, first_s: float = 0.0) -> int:
    """Move the slot as `--cluster reshard` does, key by key, the first one after a while; how many were moved."""
    await begin_move(source, target)
    await asyncio.sleep(first_s)
    moved = 0
    while keys := await source.keys(1):
        await move_key(source, target, keys[0])
        await asyncio.sleep(between_keys_s)
        moved += 1
    await end_move(source, target)
    return moved
