"""The store of the sample deployment: a server of its own, a cluster of its own, or somebody's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dhsched.local.ports import free_ports
from dhsched.store.link.address import parse_address
from dhsched.store.server.embedded import Embedded
from dhsched.store.server.embedded_cluster import PRIMARIES_MIN, EmbeddedCluster
from dhsched.store.server.shards import Shard, choose_cells, read_shards, shard_of

ONLY_CELL = "main"


class StoreServer(NamedTuple):
    """A server that was started for the sample. `about` says where it listens and what it serves, if it is one of
    several."""

    name: str
    pid: int
    about: str = ""


@dataclass(frozen=True, slots=True)
class SampleStore:
    """The store of the sample. `cells` are the names of its cells, where it has several; `servers` were started for the
    sample, and are none where the store is somebody's."""

    url: str
    cells: tuple[str, ...] = ()
    servers: tuple[StoreServer, ...] = ()

    @property
    def first_cell(self) -> str:
        """Return the cell in which keys are written."""
        return self.cells[0] if self.cells else ONLY_CELL


@asynccontextmanager
async def sample_store(
    url: str | None, data: Path | None, cells: int, say: Callable[[str], None]
) -> AsyncIterator[SampleStore]:
    """Yield the store at `url`; without a `url` start one, which keeps its data in `data` if that is given. `cells` is
    the number of cells, 0 for a deployment of one: several lie on different primaries of a cluster."""
    if url is not None:
        shards = await read_shards(parse_address(url)) if cells else []
        yield SampleStore(url, tuple(choose_cells(shards, cells)) if cells else ())
    elif cells:
        ports = free_ports(max(PRIMARIES_MIN, cells))
        say(f"starting a Valkey Cluster of {len(ports)} primaries")
        async with EmbeddedCluster(ports) as cluster:
            shards = await read_shards(cluster.address)
            names = choose_cells(shards, cells)
            nodes = enumerate(cluster.nodes, 1)
            servers = tuple(StoreServer(f"store-{n}", node.pid, about(node, shards, names)) for n, node in nodes)
            yield SampleStore(cluster.address.url(), tuple(names), servers)
    else:
        say("starting a store")
        async with Embedded(data) as store:
            yield SampleStore(store.address.url(), servers=(StoreServer("store", store.pid),))


def about(node: Embedded, shards: Sequence[Shard], cells: Sequence[str]) -> str:
    """Return where a node of the cluster listens, and which of the cells it serves."""
    here = [cell for cell in cells if (shard := shard_of(shards, cell)) and shard.primary.port == node.port]
    return f"{node.tcp_address.hosts[0]}, {' and '.join(f'cell {cell}' for cell in here) or 'no cell'}"
