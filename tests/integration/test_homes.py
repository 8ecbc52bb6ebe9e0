"""Homes on real servers: the numbers jump where the server's name changes, and what was told and is lost is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dhsched.errors import StoreIncompatible
from dhsched.ownership import outcomes as o
from dhsched.ownership.state import Home
from dhsched.ownership.steps.enter import JUMP_MIN
from dhsched.ownership.steps.place import Create
from dhsched.store import homes
from dhsched.store.homes import Entry, Loss
from dhsched.store.keys import Keys
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
from dhsched.store.raw import read_state
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import sources
from tests.harness.fleet import Record, fleet, until
from tests.harness.servers import SERVERS, running_server

DEBUG = ("--enable-debug-command", "yes")
CREATE = Create(digital_id="d", fingerprint="f")
JUMP = JUMP_MIN + 5


@pytest.fixture(autouse=True)
def jump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "random_jump", lambda: JUMP)


@pytest.fixture(params=SERVERS)
async def renamed(request: pytest.FixtureRequest) -> AsyncIterator[Embedded]:
    """A server whose name a test can change, as a promotion does."""
    async with running_server(request.param, extra=DEBUG) as server:
        yield server


@asynccontextmanager
async def opened(server: Embedded) -> AsyncIterator[tuple[RedisStore, Link, list[Entry]]]:
    entries: list[Entry] = []
    async with await RedisStore.open(server.address) as store, await Link.open(server.address, {}) as admin:
        store.homes.on_entered.append(entries.append)
        yield store, admin, entries


async def rename(admin: Link) -> None:
    await admin.call("DEBUG", "CHANGE-REPL-ID")


async def test_a_call_on_a_server_with_another_name_runs_in_a_new_home(renamed: Embedded) -> None:
    async with opened(renamed) as (store, admin, entries):
        first = store.homes.home
        a = await store.register_worker(name="a", boot="b1", pool="p", capacity=2)
        assert a.worker == "a#1"
        await rename(admin)
        b, c = await asyncio.gather(
            store.register_worker(name="b", boot="b2", pool="p", capacity=2),
            store.register_worker(name="c", boot="b3", pool="p", capacity=2),
        )
        assert (b.worker, c.worker) == (f"b#{JUMP + 2}", f"c#{JUMP + 3}"), "in their order, above the jump"
        assert store.homes.home != first and [each.name for each in store.homes.homes] == [first, store.homes.home]
        assert entries == [Entry(store.homes.home, first, again=False, losses=())]
        assert store.homes.losses == []
        assert store.link.reconnects == 1


async def test_two_links_begin_one_home_and_both_go_on(renamed: Embedded) -> None:
    async with opened(renamed) as (one, admin, _), opened(renamed) as (two, _, of_two):
        assert one.homes.home == two.homes.home
        await rename(admin)
        await one.register_worker(name="a", boot="b1", pool="p", capacity=2)
        await two.register_worker(name="b", boot="b2", pool="p", capacity=2)
        assert one.homes.home == two.homes.home and len(one.homes.homes) == 2
        assert [entry.again for entry in of_two] == [True]


async def test_what_was_told_and_is_gone_is_known_to_whoever_was_told(renamed: Embedded) -> None:
    async with opened(renamed) as (store, admin, entries):
        first, cell = store.homes.home, store.keys.cell
        await store.register_worker(name="a", boot="b1", pool="p", capacity=2)
        kept = {key: await admin.call("DUMP", key) for key in await admin.call("KEYS", "*")}
        for n in range(3):
            await store.register_worker(name="b", boot=f"lost-{n}", pool="p", capacity=2)
        await admin.call("FLUSHALL")
        for key, value in kept.items():
            await admin.call("RESTORE", key, 0, value)
        await rename(admin)
        after = await store.register_worker(name="c", boot="b2", pool="p", capacity=2)
        assert after.worker == f"c#{JUMP + 2}", "no number of the lost time again"
        assert entries[-1].losses == (Loss(first, told=4, kept=1),) == tuple(store.homes.losses)
        assert store.homes.lost_calls == 3
        # It is said once.
        store.link.leave("a test")
        await store.register_worker(name="d", boot="b3", pool="p", capacity=2)
        assert store.homes.lost_calls == 3 and entries[-1].again
        assert (await read_state(admin, cell[len("dh:{") : -len("}:cell")])).cell.homes[1] == Home(
            store.homes.home, 1, (await read_state(admin, "main")).cell.homes[1].at
        )


async def test_data_that_vanished_under_the_same_name_is_a_loss_too(renamed: Embedded) -> None:
    async with opened(renamed) as (store, admin, _):
        for n in range(3):
            await store.register_worker(name="a", boot=f"b{n}", pool="p", capacity=2)
        await admin.call("FLUSHALL")
        after = await store.register_worker(name="a", boot="b9", pool="p", capacity=2)
        assert after.worker == f"a#{JUMP + 1}", "this process remembers"
        assert store.homes.lost_calls == 3


async def test_the_runtime_of_a_live_goes_on_when_the_server_has_another_name(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path, with_loops=True, server=DEBUG) as f:
        await f.start_worker(record, "w1")
        for live in ("a", "b"):
            await f.create(live)
            await f.push(live, "before")
        await until(lambda: len(record.consumed) == 2, "the first items")
        async with await Link.open(f.server.address, {}) as admin:
            await rename(admin)
        for live in ("a", "b"):
            await f.push(live, "after")
        await until(
            lambda: all(record.texts(live) == ["before", "after"] for live in ("a", "b")), "the items after", 30
        )
        assert len(record.opened) == 2, "no runtime was restarted"
        for replica in f.replicas:
            await replica.events.written()
        kinds = [event["kind"] for event in (await f.get("/v1/events?limit=1000"))["events"]]
        assert kinds.count("store_entered") == 1 and "store_lost" not in kinds and "live_recovered" not in kinds
        async with asyncio.timeout(20):
            store = await f.get("/v1/store")
            # A replica enters with its next step, and each of its links at its own time.
            while len(store["homes"]) < 2 or store["home"] != store["homes"][-1]["home"]:
                await asyncio.sleep(0.05)
                store = await f.get("/v1/store")
        assert len(store["homes"]) == 2 and store["losses"] == []


async def test_a_cell_without_numbers_left_is_refused(renamed: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "random_jump", lambda: 2**50)
    async with await Link.open(renamed.address, {}) as admin:
        await admin.call("HSET", Keys("main").cell, "pos", 1)
    with pytest.raises(StoreIncompatible, match="cell main has given out too many numbers"):
        await RedisStore.open(renamed.address)


async def test_a_live_keeps_its_generation_over_a_real_restart(tmp_path: Path) -> None:
    for kind in SERVERS:
        data = tmp_path / kind
        async with running_server(kind, data) as server, await RedisStore.open(server.address) as store:
            worker = (await store.register_worker(name="a", boot="b1", pool="p", capacity=2)).worker
            await store.report(worker=worker, boot="b1")
            placed = await store.place(live="t/a", operation="op", cause="create", create=CREATE, candidates=[worker])
            assert isinstance(placed, o.Committed)
            first = store.homes.home
        async with running_server(kind, data) as server, await RedisStore.open(server.address) as store:
            assert store.homes.home != first and len(store.homes.homes) == 2
            live = (await read_state(store.link, "main")).lives["t/a"]
            assert live.generation == placed.generation
            pulled = await store.pull(live="t/a", worker=worker, epoch=live.epoch, after=0, controller="c")
            assert isinstance(pulled, o.Pulling) and pulled.pull_no == JUMP + 1


@pytest.mark.parametrize(
    ("info", "name", "same"),
    [
        ("role:master\r\nmaster_replid:abc\r\nmaster_replid2:def\r\n", "abc", True),
        ("role:master\r\nmaster_replid:abc\r\nmaster_replid2:def\r\n", "def", False),
        ("role:master\r\nmaster_replid:abc\r\n", "ab", False),
        ("role:master\r\nmaster_replid:abc\r\n", "", False),
        ("role:master\r\nmaster_replid:abc\r\n", "none", False),
        ("role:master\r\n", "none", True),
        ("role:master\r\n", "abc", False),
    ],
)
async def test_a_name_is_compared_as_a_whole(server: Address, info: str, name: str, same: bool) -> None:
    """The name that a promoted server had before is in INFO as well, and some servers show no name."""
    source = f"local function call() return ARGV[1] end\n{sources()['lib/server']}\n"
    async with await Link.open(server, scripts={}) as link:
        assert bool(await link.call("EVAL", f"{source} return server_is(ARGV[2]) and 1", 0, info, name)) is same
