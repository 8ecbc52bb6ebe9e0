"""A store that is a cluster of three primaries: the cell's slot moves between two of them, and the third one stays.

Services reach each node through a proxy, because each node announces the proxy's port as its own
(`cluster-announce-port`). So a fault of a proxy is a fault of the way of all controllers to one node. The nodes talk to
each other, and the driver to them, without proxies; but a slot that moves at once is sent to the port that its new node
announces, through the proxy.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from dhsched.errors import StoreError, StoreRefused
from tests.chaos.store import MakeProxy, Store
from tests.harness.clusters import (
    CELL,
    OPTIONS,
    SLOT,
    Primary,
    begin_move,
    end_move,
    healthy,
    introduce,
    move_keys,
)
from tests.harness.fleet import until_so
from tests.harness.proxy import Proxy
from tests.harness.replication import Member

NODES = ("store-1", "store-2", "store-3")
HALF_WAY = 0.5  # The share of the keys that has left when a move is interrupted.
AT_ONCE_MAX_S = 20.0  # A slot that has not moved at once by then is left where it is.
OVER = frozenset({b"success", b"failed", b"cancelled"})
"""States of CLUSTER GETSLOTMIGRATIONS in which a move is over."""

Way = Literal["straight", "interrupted", "source killed", "target killed", "at once"]
WAYS: dict[Way, float] = {
    "straight": 0.3,
    "interrupted": 0.25,
    "source killed": 0.1,
    "target killed": 0.1,
    "at once": 0.25,
}
"""How the slot is moved, and how often: key by key without a pause; with a pause half-way; with a pause and a node that
is killed and started again after it; by CLUSTER MIGRATESLOTS, or straight on a server that has no such command."""


def way_of(share: float) -> Way:
    """Return the way that a number from 0 to 1 stands for."""
    for way, weight in WAYS.items():
        if share < weight:
            return way
        share -= weight
    return "straight"


class Node(Member):
    """A node of the cluster, which names `announced` as its port to clients."""

    def __init__(self, kind: str | None, name: str, folder: Path, announced: int) -> None:
        self.options = (*OPTIONS, "--cluster-announce-port", str(announced))
        super().__init__(kind, name, folder, appendfsync="always")


class Cluster(Store):
    """See the module. `resharded` counts moves of the slot by their way, `keys_moved` the keys of those one by one."""

    def __init__(self, folder: Path, make_proxy: MakeProxy, kind: str | None = None) -> None:
        super().__init__(folder, make_proxy)
        self.resharded: Counter[str] = Counter()
        self.keys_moved = 0
        self._kind = kind
        self._owner = 0

    @property
    def serving(self) -> Member:
        return self.members[self._owner]

    async def start(self) -> None:
        for name in NODES:
            proxy = self.proxies[name] = await self._make_proxy(f"to-{name}", 0)
            node = Node(self._kind, name, self._folder, proxy.port)
            proxy.target = node.port
            self.members.append(node)
        await asyncio.gather(*(node.start() for node in self.members))
        await introduce([node.port for node in self.members])
        async with self._pair() as pair:
            await healthy(*(each.admin for each in pair))

    async def url_for(self, controller: str) -> str:
        return "redis://" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies.values())

    def ways_of(self, kind: str) -> list[Proxy]:
        return [*self.proxies.values()]

    async def stray_keys(self) -> list[str]:
        found = []
        for node in self.members:
            if node is not self.serving:
                keys = await node.ask("CLUSTER", "GETKEYSINSLOT", SLOT, 1_000)
                found += [f"{node.name} does not own the slot of {CELL} and has {key}" for key in keys]
        return found

    # -- the fault

    async def reshard(self, share: float, seconds: float) -> None:
        """Move the slot to the other one of two nodes, in the way of `share`; `seconds` is how long an interrupted move
        stands still."""
        async with self.lock, self._pair() as (source, target):
            # After an earlier fault a node may need two seconds before it serves.
            await healthy(source.admin, target.admin)
            way = way_of(share)
            try:
                moved = await self._at_once(source, target) if way == "at once" else None
                if moved is None:
                    way = "straight" if way == "at once" else way
                    moved = await self._key_by_key(source, target, way, seconds)
            except StoreError as error:
                # Injector takes this error for a fault that is not there; a slot that is torn would be no calm.
                raise RuntimeError(f"the slot is half-way between two nodes: {error}") from error
            if not moved:
                self.resharded[f"{way}, failed"] += 1
                return
            self._owner = 1 - self._owner
            self.resharded[way] += 1

    async def _key_by_key(self, source: Primary, target: Primary, way: Way, seconds: float) -> bool:
        await begin_move(source, target)
        if way != "straight":
            keys = await source.admin.call("CLUSTER", "COUNTKEYSINSLOT", SLOT)
            self.keys_moved += await move_keys(source, target, int(keys * HALF_WAY))
            await asyncio.sleep(seconds)
        if way in ("source killed", "target killed"):
            victim = self.members[self._owner if way == "source killed" else 1 - self._owner]
            await victim.kill()
            await victim.restart()
            await healthy(source.admin, target.admin)
        self.keys_moved += await move_keys(source, target)
        await end_move(source, target)
        return True

    async def _at_once(self, source: Primary, target: Primary) -> bool | None:
        """Move the slot with CLUSTER MIGRATESLOTS. Return whether it has moved, or None where there is no such
        command."""
        target_id = (await target.id()).decode()
        try:
            await source.admin.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", SLOT, SLOT, "NODE", target_id)
        except StoreRefused as refusal:
            if "unknown subcommand" in refusal.reply:
                return None
            raise

        async def newest() -> bytes:
            migrations = await source.admin.call("CLUSTER", "GETSLOTMIGRATIONS")
            state: bytes = migrations[0][b"state"]
            return state

        try:
            state = await until_so(newest, OVER.__contains__, "the slot to move at once", AT_ONCE_MAX_S)
        except AssertionError:
            await source.admin.call("CLUSTER", "CANCELSLOTMIGRATIONS")
            state = await until_so(newest, OVER.__contains__, "the move to be cancelled")
        if state != b"success":
            return False
        await until_so(source.keys, lambda keys: not keys, "the old node to delete what has left")
        return True

    @asynccontextmanager
    async def _pair(self) -> AsyncIterator[tuple[Primary, Primary]]:
        """The node that has the slot and the one that gets it, each with a connection of the driver's own."""
        old, new = self.members[self._owner], self.members[1 - self._owner]
        async with self.link(old.server.tcp_address) as left, self.link(new.server.tcp_address) as right:
            yield Primary(old.server, left), Primary(new.server, right)
