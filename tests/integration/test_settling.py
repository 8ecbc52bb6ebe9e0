"""Settled replies on real servers: what was told is on the replica, and nothing is told that is not."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from dhsched.client.metrics import total
from dhsched.errors import StoreIncompatible, StoreUnavailable
from dhsched.infer.app import open_infer
from dhsched.infer.settings import InferSettings
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps.place import Create
from dhsched.store.link.address import Address
from dhsched.store.link.link import LinkSettings
from dhsched.store.records.controllers import Controller
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import Script, default_scripts, scripts_around
from tests.harness.fleet import Fleet, Record, until, until_so
from tests.harness.replicas import register
from tests.harness.sentinels import (
    PATIENCE_S,
    caught_up,
    command,
    facts,
    follow,
    kill,
    promote,
    replicated,
    seen,
)
from tests.harness.servers import running_server
from tests.harness.serving import serving

PATIENT = LinkSettings(connect_s=60, deadline_s=60, dead_after_s=60, settle_ms=60_000)
SOON = replace(PATIENT, settle_ms=50)
"""A replica that does not answer at all is given up soon; one that is only slow is, too, so calls are repeated."""
CREATE = Create(digital_id="anna", fingerprint="f")


@asynccontextmanager
async def settled(
    primary: Embedded, settings: LinkSettings, *, replicas: int = 1, **more: Any
) -> AsyncIterator[RedisStore]:
    address = replace(primary.tcp_address, replicas=replicas)
    async with await RedisStore.open(address, settings=settings, **more) as store:
        yield store


@contextmanager
def frozen(server: Embedded) -> Iterator[None]:
    """The server stands still; what was sent to it waits."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def place(store: RedisStore, worker: str) -> Any:
    return await store.place(live="t/L", operation="op-1", cause="create", create=CREATE, candidates=[worker])


async def place_until_told(store: RedisStore, worker: str) -> Any:
    """Repeat the call with the same id until it is told."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await place(store, worker)
            except StoreUnavailable as error:
                assert error.unknown, error


async def test_what_was_told_is_on_the_replica(kind: str) -> None:
    async with replicated(kind, 1) as (primary, replica), settled(primary, PATIENT) as store:
        (worker,) = await register(store, 1, capacity=100)
        for n in range(12):
            placed = await store.place(
                live=f"t/L{n}", operation=f"op-{n}", cause="create", create=CREATE, candidates=[worker]
            )
            assert isinstance(placed, o.Committed)
            assert await command(replica.port, "EXISTS", store.keys.of("live", f"t/L{n}")) == 1
        assert store.link.settling is not None and store.link.settling.last is not None
        assert (store.link.settling.last.replicas, store.link.settling.unsettled_calls) == (1, 0)


async def test_what_was_told_survives_the_promotion(kind: str) -> None:
    """The primary is killed while items are appended, and the replica is promoted as it is."""
    told: dict[str, int] = {}

    async def push(store: RedisStore, live: str) -> None:
        with contextlib.suppress(StoreUnavailable):
            for n in itertools.count(1):
                outcome = await store.append_input(live=live, kind="text", payload=b"x", producer="app", n=n)
                assert outcome == o.Appended(n)
                told[live] = n

    async with replicated(kind, 1) as (old, new), settled(old, PATIENT, limits=Limits(pending_max=10**6)) as store:
        (worker,) = await register(store, 1, capacity=8)
        lives = [f"t/L{n}" for n in range(8)]
        for live in lives:
            await store.place(live=live, operation=f"op-{live[2:]}", cause="create", create=CREATE, candidates=[worker])
        pushing = [asyncio.create_task(push(store, live)) for live in lives]
        await until(lambda: sum(told.values()) > 400, "many items to be told")
        kill(old)
        await until(lambda: store.link.state == "reconnecting", "the link to notice")
        for task in pushing:
            task.cancel()  # What is unsent would wait for the next connection.
        ended = await asyncio.gather(*pushing, return_exceptions=True)
        assert all(each is None or isinstance(each, asyncio.CancelledError) for each in ended), ended
        await promote(new)
        for live in lives:
            assert await command(new.port, "LLEN", store.keys.of("input", live)) >= told[live], live


async def test_nothing_is_told_while_the_replica_is_missing_and_the_repetition_is(kind: str) -> None:
    async with replicated(kind, 1) as (primary, replica), settled(primary, SOON) as store:
        async with settled(primary, PATIENT, replicas=0) as careless:
            (worker,) = await register(careless, 1, capacity=2)
        with frozen(replica):
            with pytest.raises(StoreUnavailable, match=r"place_create ran on store .* 0 of 1 replicas") as caught:
                await place(store, worker)
            assert caught.value.unknown and store.link.settling is not None
            assert "0 of 1 replicas" in store.link.settling.trouble
        placed = await place_until_told(store, worker)
        assert isinstance(placed, o.Committed) and placed.again, "it ran the first time"
        assert store.link.settling.trouble == "" and store.link.settling.unsettled_calls > 0


async def test_the_old_side_of_a_partition_is_told_nothing(kind: str) -> None:
    async with replicated(kind, 1) as (old, new), settled(old, SOON) as store:
        (worker,) = await register_until_told(store)
        await promote(new)
        await seen(old.port, ["INFO", "replication"], lambda info: info["connected_slaves"] == "0")
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="0 of 1 replicas") as caught:
                await place(store, worker)
            assert caught.value.unknown
        assert await command(new.port, "EXISTS", store.keys.of("live", "t/L")) == 0


async def register_until_told(store: RedisStore) -> list[str]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await register(store, 1, capacity=2)
            except StoreUnavailable as error:
                assert error.unknown, error


async def told_of_an_unsettled_write(kind: str, scripts: Mapping[str, Script] | None = None) -> bool:
    """Whether a batch that only reads is told of another client's write that no replica has."""
    async with (
        replicated(kind, 1) as (primary, replica),
        settled(primary, PATIENT, replicas=0) as careless,
        settled(primary, SOON, scripts=scripts) as reader,
    ):
        key = careless.keys.of("never_told")
        await caught_up(replica, primary)
        with frozen(replica):
            await careless.link.call("SET", key, "x")
            try:
                assert await reader.link.call("GET", key) == b"x"
            except StoreUnavailable as error:
                assert error.unknown, error
                return False
            return True


async def test_a_batch_that_only_reads_is_told_of_settled_writes_only(kind: str) -> None:
    assert not await told_of_an_unsettled_write(kind)


async def test_a_settle_that_does_not_write_is_noticed() -> None:
    """On Valkey WAIT goes by the connection's own last write, and this connection has none that waits."""
    settle = scripts_around()["settle"]
    source = settle.source.replace(b"call('HINCRBY', KEYS[1], 'settled', 1)", b"0")
    assert source != settle.source
    mutant = {**default_scripts(), "settle": replace(settle, source=source)}
    assert await told_of_an_unsettled_write("valkey", mutant)


async def test_a_server_that_was_demoted_and_promoted_again_has_another_name(kind: str) -> None:
    """Its connections stay, and WAIT counts by offsets: what settles a batch compares the name."""
    async with replicated(kind, 1) as (primary, other), settled(primary, PATIENT, replicas=0) as store:
        home, reconnects = store.homes.home, store.link.reconnects
        assert await store.link.run("same_home", [store.keys.cell]) == home.encode()
        await caught_up(other, primary)
        await promote(other)
        await follow(primary, other)
        await seen(primary.port, ["INFO", "replication"], lambda info: info.get("master_link_status") == "up")
        await promote(primary)
        for script in ("same_home", "settle"):
            assert await store.link.run(script, [store.keys.cell])
            assert store.homes.home != home and store.link.reconnects == reconnects + 1


async def test_on_disk_with_fsync(kind: str) -> None:
    async with replicated(kind, 1, "--appendfsync", "always") as (primary, replica):
        address = replace(primary.tcp_address, replicas=1, fsync=True)
        if (await facts(primary.port, "INFO", "server"))["redis_version"] < "7.2":
            with pytest.raises(StoreIncompatible, match=r"use Valkey, or Redis 7\.2 or later"):
                await RedisStore.open(address, settings=PATIENT)
            return
        async with await RedisStore.open(address, settings=PATIENT) as store:
            (worker,) = await register(store, 1, capacity=2)
            assert isinstance(await place(store, worker), o.Committed)
            assert await command(replica.port, "EXISTS", store.keys.of("live", "t/L")) == 1


async def test_fsync_without_always_is_refused_at_the_start() -> None:
    async with running_server("valkey") as server:
        with pytest.raises(StoreIncompatible, match="appendonly yes and appendfsync everysec, and its URL fsync=1"):
            await RedisStore.open(replace(server.address, fsync=True), settings=PATIENT)


def is_ready(found: tuple[int, str]) -> bool:
    return found[0] == 200


def wait_for_replicas(patch: pytest.MonkeyPatch, settle_ms: int) -> None:
    """Let the links of roles, which have the default settings, wait longer: a busy machine is no missing replica."""
    defaults = LinkSettings.__init__.__kwdefaults__
    assert defaults is not None
    patch.setitem(defaults, "settle_ms", settle_ms)


@pytest.mark.release
async def test_a_role_whose_store_does_not_settle_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_replicas(monkeypatch, 5_000)
    async with replicated("valkey", 1) as (primary, replica):
        address = replace(primary.tcp_address, replicas=1)
        infer = open_infer(InferSettings(store=address.url(), access="open"))
        async with serving(address) as api, infer as controller, TestClient(TestServer(controller.app)) as client:

            async def of_dispatch() -> tuple[int, str]:
                status, said = await api("GET", "/readyz")
                return status, str(said)

            async def of_infer() -> tuple[int, str]:
                with contextlib.suppress(StoreUnavailable):  # As it announces itself again and again.
                    await controller.context.store.records.controllers.announce(Controller("i", "http://i"))
                response = await client.get("/readyz")
                return response.status, await response.text()

            for ask in (of_dispatch, of_infer):
                await until_so(ask, is_ready, "the role to be ready")
                with frozen(replica):
                    _, said = await until_so(ask, lambda found: "unsettled for" in found[1], "the role to say so")
                    assert "NOT_READY" in said and "0 of 1 replicas" in said
                await until_so(ask, is_ready, "the role to be ready again")
            for page in (await text(api.client, "/metrics"), await text(client, "/metrics")):
                assert total(page, "dhsched_store_settle_seconds_count") > 0
                assert total(page, "dhsched_store_unsettled_calls_total") > 0


async def text(client: TestClient[Any, Any], path: str) -> str:
    return await (await client.get(path)).text()


class SettledFleet(Fleet):
    """A deployment whose store must have a replica."""

    @property
    def address(self) -> Address:
        return replace(self.server.tcp_address, replicas=1)


async def test_input_flows_on_a_store_that_settles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_replicas(monkeypatch, 60_000)
    runtime = Record()
    async with replicated("valkey", 1) as (primary, replica), contextlib.AsyncExitStack() as stack:
        made = SettledFleet(primary, tmp_path, stack)
        made.http = await stack.enter_async_context(aiohttp.ClientSession())
        await made.start_dispatch()
        await made.start_infer()
        await made.configure()
        await made.start_worker(runtime, "w1")
        await made.create("L")
        texts = [f"item {n}" for n in range(10)]
        for each in texts:
            status, said = await made.push("L", each)
            assert status < 300, said
        await until(lambda: runtime.texts("L") == texts, "every item to be consumed")
        assert await command(replica.port, "EXISTS", "dh:{main}:live:default/L") == 1
