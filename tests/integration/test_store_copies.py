"""Copies of the configuration and the key ring between two cells, by copy_config.lua on real servers of both kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dhsched.access.ring import SECRET_KINDS, KeyRing, open_ring
from dhsched.access.tenants import TENANTS, TenantLimits
from dhsched.client.models.pools import PoolConfig
from dhsched.dispatch.cells.copies import Copies
from dhsched.dispatch.config import POOLS
from dhsched.store.link.address import Address
from dhsched.store.reaching import ReachedCell
from dhsched.store.records import Records
from dhsched.store.records.config import KINDS, Copy
from dhsched.store.steps.redis import RedisStore

MANY = 4_000  # Records of one copy: more values than Lua unpacks at once.


@asynccontextmanager
async def two_cells(server: Address) -> AsyncIterator[tuple[ReachedCell, ReachedCell]]:
    """Two cells on one server, connected to."""
    cells = ReachedCell("a", server), ReachedCell("b", server)
    async with (
        await RedisStore.open(server, cell="a") as a,
        await RedisStore.open(server, cell="b") as b,
        await Records.open(server, cell="a") as reads_a,
        await Records.open(server, cell="b") as reads_b,
    ):
        for each, store, records in zip(cells, (a, b), (reads_a, reads_b), strict=True):
            each.store, each.records = store, records
            each.connected.set()
        yield cells


async def read(cell: ReachedCell) -> list[Copy]:
    found = [await cell.records.config.copy(what) for what in KINDS]
    return [copy for copy in found if copy is not None]


async def test_a_copy_replaces_everything_and_only_by_something_newer(server: Address) -> None:
    async with two_cells(server) as (a, b):
        config = a.store.records.config
        await config.put(POOLS, "gpu", PoolConfig(priority=1))
        await config.put(POOLS, "cpu", PoolConfig())
        await config.put(TENANTS, "acme", TenantLimits(lives_max=3))
        await b.store.records.config.put(POOLS, "old", PoolConfig())
        copy = await a.records.config.copy("config")
        assert copy is not None and copy.rev == 3 and len(copy.rows) == 3
        take_over = b.store.records.config.take_over
        assert await take_over("config", copy, also_equal=False)
        assert await b.records.config.copy("config") == copy, "what was only here is gone"
        assert (await b.records.config.all(POOLS, PoolConfig))["gpu"].priority == 1
        assert not await take_over("config", copy, also_equal=False)
        other = Copy(3, (("tenants", b"other", b"{}"),))
        assert not await take_over("config", other, also_equal=False)
        assert not await take_over("config", other._replace(rev=2), also_equal=True), "older, even so"
        assert await take_over("config", other, also_equal=True)
        assert await b.records.config.copy("config") == other
        await b.store.records.config.put(POOLS, "gpu", PoolConfig())
        assert await b.records.config.rev() == 4, "revisions go on behind it"
        assert await take_over("config", Copy(9, ()), also_equal=False)
        assert await b.records.config.copy("config") == Copy(9, ()), "nothing is a configuration, too"


async def test_the_key_ring_is_copied_with_its_secrets(server: Address) -> None:
    async with two_cells(server) as (a, b):
        ring = await open_ring(a.store.link, a.store.keys)
        text, record = await ring.create(role="app", tenant="acme")
        copies = Copies([a, b])
        await copies.round()
        there = KeyRing(b.store.link, b.store.keys, written_in="a")
        await there.read()
        assert there.api_keys == ring.api_keys and record.id in there.api_keys and text
        for kind in SECRET_KINDS:
            assert there.secrets(kind) == ring.secrets(kind)
        await ring.revoke(record.id)
        await copies.round()
        await there.read()
        assert there.api_keys == {}


async def test_the_newest_wins_then_the_first_and_a_cell_that_has_forgotten_gets_it_back(server: Address) -> None:
    async with two_cells(server) as (a, b):
        copies = Copies([a, b])
        for name in ("one", "two"):
            await a.store.records.config.put(POOLS, name, PoolConfig())
        await open_ring(a.store.link, a.store.keys)
        await copies.round()
        assert await read(a) == await read(b), "also the secrets of a ring without any change"
        await a.store.link.call("DEL", a.store.keys.of("pools"))
        await a.store.link.call("HSET", a.store.keys.cell, "config_rev", 1)
        await copies.round()
        assert sorted(await a.records.config.all(POOLS, PoolConfig)) == ["one", "two"]
        await a.store.records.config.put(POOLS, "mine", PoolConfig())
        await b.store.records.config.put(POOLS, "yours", PoolConfig())
        await Copies([a, b]).round()
        found = [sorted(await each.records.config.all(POOLS, PoolConfig)) for each in (a, b)]
        assert found == [["mine", "one", "two"]] * 2, "two that are equally new: the first cell is right"


async def test_thousands_of_records_are_one_copy(server: Address) -> None:
    async with two_cells(server) as (a, b):
        rows = tuple(("tenants", b"tenant-%04d" % n, b'{"lives_max":%d}' % n) for n in range(MANY))
        assert await b.store.records.config.take_over("config", Copy(7, rows), also_equal=False)
        await Copies([a, b]).round()
        assert await a.records.config.copy("config") == Copy(7, rows)


async def test_a_copy_that_changes_while_it_is_read_is_none(server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_cells(server) as (a, _):
        records = a.records.config
        await a.store.records.config.put(POOLS, "gpu", PoolConfig())
        read_revs, reads = records.revs, 0

        async def revs() -> object:
            nonlocal reads
            reads += 1
            if reads == 2:
                await a.store.records.config.put(POOLS, "cpu", PoolConfig())
            return await read_revs()

        monkeypatch.setattr(records, "revs", revs)
        assert await records.copy("config") is None
        copy = await records.copy("config")
        assert copy is not None and [field for _, field, _ in copy.rows] == [b"cpu", b"gpu"]
