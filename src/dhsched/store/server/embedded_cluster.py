"""A Valkey Cluster that dhsched runs itself, for a deployment of several cells on one machine, to try things out.

Each node is a primary, a server of our own as `Embedded` starts it, with a guardian, so that none is left behind. No
node has a replica, and nothing is kept: a node that dies takes the data of its cells along. The nodes listen on the
loopback address, because the nodes of a cluster are reached by TCP. Others on this machine need the password, of which
only the hash is among the arguments of a server. The bus between the nodes has no password in Valkey: whoever may run
programs here can disturb the cluster, so this is for no machine that strangers use.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Self

from dhsched.errors import ServerNotStarted
from dhsched.store.link.address import HOSTS_MAX, Address, Host
from dhsched.store.link.cluster import SLOTS
from dhsched.store.link.link import Link
from dhsched.store.server.embedded import Embedded, choose_server_binary

PRIMARIES_MIN = 3  # Of two primaries, one alone is no majority: it would stop serving when the other one is dead.
PRIMARIES_MAX = HOSTS_MAX  # The URL names every node, so that a client can begin with any of them.
PASSWORD_BYTES = 32
JOINED_S = 30.0  # Nodes that do not know each other this long after they were introduced are stopped with an error.
POLL_S = 0.02
LOOPBACK = "127.0.0.1"
OPTIONS = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")


class EmbeddedCluster:
    """One cluster with a node at each of `ports`, from `start` to `stop`. The port of a node's bus is 10,000 higher."""

    def __init__(self, ports: Sequence[int], *, binary: Path | None = None) -> None:
        if not PRIMARIES_MIN <= len(ports) <= PRIMARIES_MAX:
            raise ValueError(f"a cluster of our own has {PRIMARIES_MIN} to {PRIMARIES_MAX} nodes, not {len(ports)}")
        self._password = secrets.token_urlsafe(PASSWORD_BYTES)
        login = f"#{sha256(self._password.encode()).hexdigest()}"
        options = (*OPTIONS, "--user", "default", "on", login, "~*", "&*", "+@all")
        binary = binary or choose_server_binary()
        self.nodes = [Embedded(port=port, binary=binary, extra=options) for port in ports]
        self._stack = AsyncExitStack()

    @property
    def address(self) -> Address:
        """Return the address of all nodes, with the password."""
        first, *others = (Host(LOOPBACK, node.port) for node in self.nodes)
        return Address(host=first.name, port=first.port, others=tuple(others), password=self._password)

    async def start(self) -> None:
        """Start the nodes and wait until they serve all slots together."""
        async with AsyncExitStack() as stack:
            for node in self.nodes:
                await stack.enter_async_context(node)
            try:
                async with asyncio.timeout(JOINED_S):
                    await self._join()
            except TimeoutError as error:
                raise ServerNotStarted(
                    f"the {len(self.nodes)} nodes of our cluster did not find each other within {JOINED_S:g} s: check "
                    f"that nothing keeps them from the ports of their bus, from {self.nodes[0].port + 10_000} on"
                ) from error
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """Stop every node."""
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _join(self) -> None:
        """Give every node an equal share of the slots and introduce it to those before."""
        count = len(self.nodes)
        async with AsyncExitStack() as stack:
            links: list[Link] = []
            for n, node in enumerate(self.nodes):
                private = replace(node.address, password=self._password)
                link = await stack.enter_async_context(await Link.open(private, {}))
                first, end = n * SLOTS // count, (n + 1) * SLOTS // count
                await link.call("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
                await link.call("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
                for other in self.nodes[:n]:  # All of them: gossip alone would take seconds.
                    await link.call("CLUSTER", "MEET", LOOPBACK, other.port)
                links.append(link)
            for link in links:
                while not serves_all(await link.call("CLUSTER", "INFO"), count):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)


def serves_all(info: bytes, count: int) -> bool:
    """Return whether a node, by its answer to CLUSTER INFO, knows `count` primaries that serve all slots."""
    facts = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    wanted = {"cluster_state": "ok", "cluster_slots_ok": str(SLOTS), "cluster_size": str(count)}
    return wanted.items() <= facts.items()
