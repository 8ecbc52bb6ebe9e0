"""Several hosts in one URL, on real servers: a promoted replica is found, two primaries are told apart, seeds are."""

from __future__ import annotations

import asyncio

import pytest

from dhsched.local.ports import free_port
from dhsched.store.link import connect
from dhsched.store.link.hosts import TwoPrimaries
from dhsched.store.link.link import Link, LinkSettings
from tests.harness.clusters import CELL, two_primaries
from tests.harness.fleet import until
from tests.harness.sentinels import caught_up, command, follow, followed, kill, promote, replicated, several
from tests.harness.serving import serving

SETTINGS = LinkSettings(connect_s=60, deadline_s=60, watch_s=0.1, backoff_max_s=0.2)
SCRIPTS = {"where": b"return redis.call('EXISTS', KEYS[1])"}


async def test_a_promoted_replica_is_found_and_the_dead_primary_keeps_nobody_from_starting(kind: str) -> None:
    async with replicated(kind, 1) as (old, new):
        address = several(old.port, new.port)
        async with await Link.open(address, SCRIPTS, SETTINGS) as link:
            await link.call("SET", "k", 1)
            await caught_up(new, old)
            kill(old)
            await until(lambda: link.state == "reconnecting", "the link to notice", 60)
            waiting = link.call("INCR", "k")
            await promote(new)
            assert await waiting == 2
            assert await link.run("where", ["k"]) == 1
        async with await Link.open(address, SCRIPTS, SETTINGS) as link:
            assert await link.call("GET", "k") == b"2"


async def test_a_planned_promotion_moves_a_link_that_only_reads(kind: str) -> None:
    async with (
        replicated(kind, 1) as (old, new),
        await Link.open(several(old.port, new.port), SCRIPTS, SETTINGS) as link,
    ):
        await command(old.port, "FAILOVER")
        await until(lambda: link.reconnects and link.state == "connected", "the link to move", 60)
        assert await link.call("CONFIG", "GET", "port") == {b"port": b"%d" % new.port}


async def test_two_primaries_leave_the_link_where_it_was(kind: str) -> None:
    heard: list[TwoPrimaries] = []
    async with replicated(kind, 1) as (old, new):
        async with await Link.open(several(new.port, old.port), SCRIPTS, SETTINGS) as link:
            link.two_primaries.report_to(heard.append)
            await promote(new)
            await until(lambda: heard, "two primaries to be noticed", 60)
            await command(old.port, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await link.call("SET", "k", "old side")
            assert await command(old.port, "GET", "k") == b"old side"
            assert await command(new.port, "GET", "k") is None
            await follow(new, old)
            await until(lambda: link.two_primaries.current is None, "the end of it", 60)
        assert heard == [TwoPrimaries(f"127.0.0.1:{old.port}", (f"127.0.0.1:{new.port}",))]


async def test_the_primary_with_the_replica_is_used(kind: str) -> None:
    async with replicated(kind, 2) as (old, new, replica):
        address = several(old.port, new.port, replica.port, replicas=1)
        async with await Link.open(address, SCRIPTS, SETTINGS) as link:
            await promote(new)
            await follow(replica, new)
            await followed(new, 1)
            await until(lambda: link.reconnects and link.state == "connected", "the link to move", 60)
            await link.call("SET", "k", "new side")
            assert await command(new.port, "GET", "k") == b"new side"
            assert (await command(old.port, "ROLE"))[0] == b"master", "the old primary still serves"


async def test_seeds_of_a_cluster_while_the_first_is_down(kind: str) -> None:
    async with two_primaries(kind) as (left, right):
        for ports in ([free_port(), right.server.port, left.server.port], [free_port(), right.server.port]):
            async with await Link.open(several(*ports), SCRIPTS, SETTINGS, slot_key=CELL) as link:
                assert link.server.cluster and await link.run("where", [CELL]) == 0
                await left.admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                assert await link.run("where", [CELL]) == 0


async def test_two_primaries_are_an_event_of_the_fleet() -> None:
    async with replicated("valkey", 1) as (old, new), serving(several(free_port(), old.port, new.port)) as api:
        await promote(new)

        async def said() -> list[dict[str, object]]:
            await api.context.events.written()
            return [each for each in (await api("GET", "/v1/events"))[1]["events"] if each["kind"] == "two_primaries"]

        async with asyncio.timeout(60):
            while not (found := await said()):  # noqa: ASYNC110  # The hosts are asked every two seconds.
                await asyncio.sleep(0.05)
        assert [each["numbers"] for each in found] == [
            {"used": f"127.0.0.1:{old.port}", "refused": [f"127.0.0.1:{new.port}"]}
        ]


async def test_a_store_with_replicas_is_used_by_a_whole_replica_of_dispatch() -> None:
    async with replicated("valkey", 1) as (old, new), serving(several(old.port, new.port)) as api:
        await api.configure()
        await api.workers(1, capacity=2)
        assert (await api.create("L1"))[0] == 201
        await caught_up(new, old)
        kill(old)
        await promote(new)
        await until(lambda: api.context.store.link.reconnects, "the store link to move", 60)
        async with asyncio.timeout(60):
            while (await api("GET", "/v1/lives/L1"))[0] != 200:  # noqa: ASYNC110  # Its other link moves as well.
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("replicas", [0, 1])
async def test_a_link_without_n_says_that_it_is_no_high_availability(
    replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(connect.log, "warning", lambda text, *values: said.append(text % values))
    async with replicated("valkey", 1) as servers:
        address = several(*(server.port for server in servers), replicas=replicas)
        async with await Link.open(address, {}, SETTINGS):
            assert any("no high availability" in each for each in said) == (replicas == 0)
