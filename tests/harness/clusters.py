"""Small clusters for tests, and the slot of one cell in them: two primaries between which the slot is moved the classic
way; three primaries with a replica each, of which the slot's owner is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import inf

from dhsched.local.ports import free_port
from dhsched.store.keys import Keys
from dhsched.store.link.cluster import SLOTS, key_slot
from dhsched.store.link.link import Link
from dhsched.store.server.embedded import Embedded
from tests.harness.fleet import until_so
from tests.harness.servers import ask, running_server

KEYS = Keys("main")
CELL = KEYS.cell
SLOT = key_slot(CELL)
OPTIONS = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
NODE_TIMEOUT_MS = 1_500  # A primary that is silent for this long is voted out.
MIGRATE_MS = 5_000
Shares = Sequence[tuple[int, int]]
SHARES = ((0, SLOT), (SLOT + 1, SLOT + 2), (SLOT + 3, SLOTS - 1))
"""Slots of three primaries: the first of them serves the cell's."""


@asynccontextmanager
async def node(kind: str, *options: str) -> AsyncIterator[Embedded]:
    async with running_server(kind, port=free_port(), extra=(*OPTIONS, *options)) as server:
        yield server


async def healthy(*admins: Link) -> None:
    """Wait until the nodes serve, and all of them know who serves our slot."""
    async with asyncio.timeout(20):
        for admin in admins:
            while b"cluster_state:ok" not in await admin.call("CLUSTER", "INFO"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Primary:
    """One node, with a link that talks to this node whatever it owns, and the slot that is moved."""

    server: Embedded
    admin: Link
    slot: int = SLOT

    async def id(self) -> bytes:
        found: bytes = await self.admin.call("CLUSTER", "MYID")
        return found

    async def keys(self, limit: int = 1_000) -> list[bytes]:
        """The slot's keys that this node holds."""
        found: list[bytes] = await self.admin.call("CLUSTER", "GETKEYSINSLOT", self.slot, limit)
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
    await target.admin.call("CLUSTER", "SETSLOT", source.slot, "IMPORTING", await source.id())
    await source.admin.call("CLUSTER", "SETSLOT", source.slot, "MIGRATING", await target.id())


async def move_key(source: Primary, target: Primary, key: bytes | str) -> None:
    await source.admin.call("MIGRATE", "127.0.0.1", target.server.port, key, 0, MIGRATE_MS, deadline_s=10)


async def end_move(source: Primary, target: Primary) -> None:
    target_id = await target.id()
    await target.admin.call("CLUSTER", "SETSLOT", source.slot, "NODE", target_id)
    await source.admin.call("CLUSTER", "SETSLOT", source.slot, "NODE", target_id)


async def move_keys(source: Primary, target: Primary, at_most: float = inf, *, between_keys_s: float = 0.0) -> int:
    """Move keys of the slot one by one, until the source has none left or `at_most` were moved; return how many."""
    moved = 0
    while moved < at_most and (keys := await source.keys(1)):
        await move_key(source, target, keys[0])
        await asyncio.sleep(between_keys_s)
        moved += 1
    return moved


async def move_slot(source: Primary, target: Primary, *, between_keys_s: float = 0.0, first_s: float = 0.0) -> int:
    """Move the slot as `--cluster reshard` does, key by key, the first one after a while; how many were moved."""
    await begin_move(source, target)
    await asyncio.sleep(first_s)
    moved = await move_keys(source, target, between_keys_s=between_keys_s)
    await end_move(source, target)
    return moved


# -- three primaries with a replica each


@dataclass(frozen=True, slots=True)
class Row:
    """A node as CLUSTER NODES shows it: `of` is the id of its primary, empty for a primary."""

    id: str
    port: int
    flags: frozenset[str]
    of: str
    slots: tuple[tuple[int, int], ...]

    @property
    def serves(self) -> bool:
        return "fail" not in self.flags

    def owns(self, slot: int) -> bool:
        return self.serves and any(first <= slot <= last for first, last in self.slots)


class Six:
    """Six nodes: `servers` by port."""

    def __init__(self, servers: dict[int, Embedded]) -> None:
        self.servers = servers
        self.killed: set[int] = set()

    @property
    def alive(self) -> list[int]:
        return [port for port in self.servers if port not in self.killed]

    async def rows(self, asked: int = 0) -> list[Row]:
        """Return the nodes, as the one on this port, or one that is alive, knows them."""
        return rows_of(await ask(asked or self.alive[0], "CLUSTER", "NODES"))

    async def owner(self, slot: int = SLOT) -> Row:
        """Return the node that serves the slot, by default the cell's."""
        found = [row for row in await self.rows() if row.owns(slot)]
        assert len(found) == 1, found
        return found[0]

    async def replica(self, slot: int = SLOT) -> Row:
        """Return the replica of the node that serves the slot."""
        owner = await self.owner(slot)
        return next(row for row in await self.rows() if row.of == owner.id and row.serves)

    async def other_primary(self, slot: int = SLOT) -> Row:
        owner = await self.owner(slot)
        return next(row for row in await self.rows() if not row.of and row.serves and row.id != owner.id)

    async def owned_by_another(self, before: Row, slot: int = SLOT) -> None:
        """Wait until every node knows that the slot is served by another node than this one."""

        async def owners() -> set[str]:
            return {next((row.id for row in await self.rows(port) if row.owns(slot)), before.id) for port in self.alive}

        await until_so(owners, lambda found: before.id not in found, "another owner of the slot")


def rows_of(nodes: str) -> list[Row]:
    """Read the answer to CLUSTER NODES: id, address, flags, primary, four more, then the slots."""
    rows = []
    for line in nodes.splitlines():
        id_, address, flags, of, *_ = words = line.split(" ")
        slots = [slot.split("-") for slot in words[8:] if not slot.startswith("[")]
        rows.append(
            Row(
                id=id_,
                port=int(address.partition("@")[0].rpartition(":")[2]),
                flags=frozenset(flags.split(",")),
                of="" if of == "-" else of,
                slots=tuple((int(slot[0]), int(slot[-1])) for slot in slots),
            )
        )
    return rows


@asynccontextmanager
async def six_nodes(kind: str, shares: Shares = SHARES) -> AsyncIterator[Six]:
    """Three primaries with these slots, and a replica of each, all in sync."""
    async with AsyncExitStack() as stack:
        options = ("--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--repl-diskless-sync-delay", "0")
        some = [await stack.enter_async_context(node(kind, *options)) for _ in range(6)]
        six = Six({server.port: server for server in some})
        ports = [*six.servers]
        await introduce(ports, shares)
        ids = [await ask(port, "CLUSTER", "MYID") for port in ports]
        for n, port in enumerate(ports[3:]):
            await ask(port, "CLUSTER", "REPLICATE", ids[n])
        await until_so(lambda: copies(ports), lambda found: found, "replicas to have copied")
        yield six


async def introduce(ports: list[int], shares: Shares = SHARES) -> None:
    """Make one cluster of empty nodes. The first three serve all slots."""
    for port, share in zip(ports, shares, strict=False):
        await ask(port, "CLUSTER", "ADDSLOTSRANGE", *share)
    for n, port in enumerate(ports):
        await ask(port, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for other in ports[:n]:  # All of them: to wait for gossip takes seconds.
            await ask(port, "CLUSTER", "MEET", "127.0.0.1", other)
    await until_so(lambda: known_by_all(ports), lambda met: met, f"{len(ports)} nodes to meet")


async def known_by_all(ports: list[int]) -> bool:
    return all([len(rows_of(await ask(port, "CLUSTER", "NODES"))) == len(ports) for port in ports])


async def copies(ports: list[int]) -> bool:
    """Whether each replica has copied its primary, and all nodes serve."""
    found = [await ask(port, "INFO", "replication") for port in ports[3:]]
    states = [await ask(port, "CLUSTER", "INFO") for port in ports]
    well = all("cluster_state:ok" in each for each in states)
    return well and all(each.get("master_link_status") == "up" for each in found)
