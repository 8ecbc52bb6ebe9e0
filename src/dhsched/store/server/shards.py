"""The primaries of a Valkey Cluster, with their replicas and slots, and which of them serves each cell.

All keys of a cell have one hash slot, which follows from the cell's name. The node that has the slot serves the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dhsched.cells.slots import choose_names
from dhsched.errors import StoreIncompatible
from dhsched.store.keys import Keys
from dhsched.store.link.address import Address, Host
from dhsched.store.link.cluster import Node, all_nodes, key_slot
from dhsched.store.link.link import Link, LinkSettings

ANY_KEY = "any"  # With a key to serve, a link goes on from a replica to a primary, which can be asked as well.


@dataclass(frozen=True, slots=True)
class Shard:
    """A primary that serves slots, and its replicas. `ranges` are its slots: the first and the last one of each."""

    id: str
    primary: Host
    replicas: tuple[Host, ...]
    ranges: tuple[tuple[int, int], ...]

    def serves(self, slot: int) -> bool:
        return any(first <= slot <= last for first, last in self.ranges)


def cell_slot(cell: str) -> int:
    """Return the hash slot of every key of a cell."""
    return key_slot(Keys(cell).cell)


def shards_of(slots: Sequence[Any], asked: str) -> list[Shard]:
    """Return the shards in a CLUSTER SLOTS reply, in the order of their first slots. `asked` is the host that has
    answered, which stands for every host that the reply leaves out."""

    def host(node: Node) -> Host:
        return Host(node.host or asked, node.port)

    found: dict[str, Shard] = {}
    for row in sorted(slots, key=lambda row: int(row[0])):
        primary, *replicas = all_nodes([row])
        before = found[primary.id].ranges if primary.id in found else ()
        ranges = (*before, (int(row[0]), int(row[1])))
        found[primary.id] = Shard(primary.id, host(primary), tuple(map(host, replicas)), ranges)
    return [*found.values()]


def shard_of(shards: Sequence[Shard], cell: str) -> Shard | None:
    """Return the shard that serves a cell; None if no node serves the cell's slot."""
    slot = cell_slot(cell)
    return next((shard for shard in shards if shard.serves(slot)), None)


def choose_cells(shards: Sequence[Shard], count: int) -> list[str]:
    """Return names for so many cells that lie on different primaries, as far as there are primaries, then evenly."""

    def primary_of(cell: str) -> str:
        shard = shard_of(shards, cell)
        return "" if shard is None else shard.id

    return choose_names(count, [shard.id for shard in shards], primary_of)


async def read_shards(address: Address) -> list[Shard]:
    """Ask a cluster which node serves which slots. Raise StoreIncompatible if the server is not a cluster's."""
    async with await Link.open(address, {}, LinkSettings(client_name="dhsched-cells"), slot_key=ANY_KEY) as link:
        if not link.server.cluster:
            raise StoreIncompatible(
                f"store {address.redacted()} is {link.server} without cluster mode, so every cell would be on this one "
                "server: give the URL of a Valkey Cluster"
            )
        slots = await link.call("CLUSTER", "SLOTS")
    return shards_of(slots, address.hosts[0].name if address.hosts else "localhost")
