"""One cell in a cluster: its slot is found, followed when it moves, and missed when nobody serves it."""

import asyncio

import pytest

from dhsched.errors import StoreRefused
from dhsched.store.link.cluster import SLOTS
from dhsched.store.link.link import Link
from dhsched.store.server.embedded import Embedded
from tests.harness.clusters import CELL, SLOT, healthy, move_slot, node, two_primaries
from tests.harness.linking import ONE_ATTEMPT

SCRIPTS = {"where": b"return redis.call('EXISTS', KEYS[1])"}


async def filled(heard: list[bytes]) -> None:
    async with asyncio.timeout(20):
        while not heard:  # noqa: ASYNC110  # It is filled by a callback.
            await asyncio.sleep(0.005)


async def open_at(server: Embedded) -> Link:
    return await Link.open(server.tcp_address, SCRIPTS, slot_key=CELL)


async def test_one_node_with_all_slots(kind: str) -> None:
    async with node(kind) as server, await Link.open(server.tcp_address, {}) as admin:
        with pytest.raises(StoreRefused, match=f"serves slot {SLOT} ") as caught:
            await Link.open(server.tcp_address, SCRIPTS, ONE_ATTEMPT, slot_key=CELL)
        assert caught.value.code == "CLUSTERDOWN"
        await admin.call("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        await healthy(admin)
        heard: list[bytes] = []
        async with await open_at(server) as link:
            assert await link.run("where", [CELL]) == 0
            await link.subscribe("dh:{main}:wake", lambda _channel, message: heard.append(message))
            assert await admin.call("SPUBLISH", "dh:{main}:wake", "m") == 1
            await filled(heard)
            await link.unsubscribe("dh:{main}:wake")
            # In a cluster we only stop listening: the node still counts us.
            assert await admin.call("SPUBLISH", "dh:{main}:wake", "unheard") == 1
            assert await link.call("PING") == b"PONG"
        assert heard == [b"m"]


async def test_a_slot_is_found_and_followed(kind: str) -> None:
    async with two_primaries(kind) as (left, right), await knowing(right.server) as link:
        heard: list[bytes] = []
        await link.subscribe("dh:{main}:wake", lambda _channel, message: heard.append(message))
        assert await link.run("where", [CELL]) == 0
        assert link.reconnects == 0
        await move_slot(left, right)
        assert await asyncio.gather(*(link.run("where", [CELL]) for _ in range(20))) == [0] * 20
        async with asyncio.timeout(20):
            while await right.admin.call("SPUBLISH", "dh:{main}:wake", "m") != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await filled(heard)
        assert link.reconnects >= 1
        assert await right.keys() == []


async def knowing(seed: Embedded) -> Link:
    """A link opened at a node that does not own our slot, as soon as that node has heard who does."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await open_at(seed)
            except StoreRefused as error:
                assert error.code == "CLUSTERDOWN"
