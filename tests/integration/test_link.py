"""The link on real servers, while things go wrong under load: no hang, no call run twice, no wrong blame."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dhsched.errors import StoreError, StoreRefused, StoreUnavailable
from dhsched.local.ports import free_port
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link, LinkSettings
from dhsched.store.server.embedded import Embedded
from tests.harness.linking import ONE_ATTEMPT, eventually
from tests.harness.servers import empty_server, running_server

SCRIPTS = {
    "count": b"return redis.call('INCR', KEYS[1])",
    "tell": b"redis.call('SPUBLISH', KEYS[1], ARGV[1]) return ARGV[1]",
}
KEY = "dh:{main}:count"
CALLERS = 50


@dataclass
class Tally:
    """What the callers were told."""

    acked: int = 0
    unknown: int = 0
    not_sent: int = 0
    refused: list[str] = field(default_factory=list)


@asynccontextmanager
async def linked(address: Address, **settings: Any) -> AsyncIterator[Link]:
    async with await Link.open(address, SCRIPTS, LinkSettings(**settings)) as link:
        yield link


@asynccontextmanager
async def under_load(link: Link) -> AsyncIterator[Tally]:
    """Callers that count up in the store, one call each at a time, until the block is left."""
    tally, going = Tally(), True

    async def caller() -> None:
        while going:
            try:
                await link.run("count", [KEY])
                tally.acked += 1
            except StoreUnavailable as error:
                tally.unknown += error.unknown
                tally.not_sent += not error.unknown
            except StoreRefused as error:
                tally.refused.append(error.code)

    callers = [asyncio.create_task(caller()) for _ in range(CALLERS)]
    try:
        await eventually(lambda: tally.acked > CALLERS)
        yield tally
    finally:
        going = False
        async with asyncio.timeout(20):
            await asyncio.gather(*callers)


async def counted(address: Address) -> int:
    async with linked(address) as link:
        return int(await link.call("GET", KEY))


# -- under load --------------------------------------------------------------------------------------------------


async def test_script_flush_under_load_is_not_noticed(server: Address) -> None:
    async with linked(server) as link, linked(server) as other:
        async with under_load(link) as tally:
            for _ in range(20):
                await other.call("SCRIPT", "FLUSH")
                await asyncio.sleep(0.02)
        assert tally == Tally(acked=int(await other.call("GET", KEY)))
        assert link.reconnects == 0


async def test_client_kill_under_load_leaves_only_unknowns(server: Address) -> None:
    told: list[int] = []
    async with linked(server) as link, linked(server) as killer:
        link.on_reconnect.append(lambda: told.append(link.reconnects))
        async with under_load(link) as tally:
            for kills in range(1, 6):
                await killer.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                await eventually(lambda kills=kills: link.reconnects == kills)  # type: ignore[misc]
                await eventually(lambda kills=kills: told == [*range(1, kills + 1)])  # type: ignore[misc]
            acked = tally.acked
            await eventually(lambda: tally.acked > acked)
        assert tally.acked <= int(await killer.call("GET", KEY)) <= tally.acked + tally.unknown
        assert (tally.not_sent, tally.refused) == (0, [])


async def test_a_server_restart_under_load_is_survived(kind: str, tmp_path: Path) -> None:
    port = free_port()
    async with running_server(kind, tmp_path, port=port) as first:
        link = await Link.open(first.tcp_address, SCRIPTS)
        loading = under_load(link)
        tally = await loading.__aenter__()
    await eventually(lambda: link.state == "reconnecting")
    async with running_server(kind, tmp_path, port=port) as second:
        acked = tally.acked
        await eventually(lambda: tally.acked > acked)
        await loading.__aexit__(None, None, None)
        await link.close()
        assert tally.acked <= await counted(second.address) <= tally.acked + tally.unknown
    assert link.reconnects == 1


async def test_a_frozen_server_hangs_nobody(kind: str) -> None:
    quick = {"deadline_s": 0.2, "dead_after_s": 0.2, "connect_s": 0.4}
    async with empty_server(kind) as server, linked(server.address, **quick) as link:
        async with under_load(link) as tally:
            os.kill(server.pid, signal.SIGSTOP)
            await eventually(lambda: tally.unknown >= CALLERS)  # Those sent when it froze, and some more.
            await eventually(lambda: tally.not_sent >= CALLERS)  # Those issued since we gave the connection up.
            os.kill(server.pid, signal.SIGCONT)
            acked = tally.acked
            await eventually(lambda: tally.acked > acked)
        assert tally.acked <= await counted(server.address) <= tally.acked + tally.unknown
        assert link.in_flight == 0


async def test_a_stall_of_our_own_is_not_blamed_on_the_store(server: Address) -> None:
    stalls: list[bytes] = []

    def stall(_channel: bytes, message: bytes) -> None:
        # While a socket is read the loop stands still, past the deadline. After that its timers run before it reads
        # the reply, which has long been there.
        time.sleep(1.2)
        stalls.append(message)

    async with linked(server) as link, linked(server) as listener:
        await listener.subscribe("dh:{main}:stall", stall)
        call = link.call("BLPOP", "dh:{main}:empty", 0.4, deadline_s=0.8)
        async with linked(server) as other:
            await other.call("SPUBLISH", "dh:{main}:stall", "now")
        assert await call is None
        assert stalls == [b"now"]


# -- pub/sub -----------------------------------------------------------------------------------------------------


async def test_messages_and_replies_share_the_connection(server: Address) -> None:
    heard: list[tuple[bytes, bytes]] = []
    async with linked(server) as link:
        await link.subscribe("dh:{main}:wake", lambda channel, message: heard.append((channel, message)))
        told = await asyncio.gather(*(link.run("tell", ["dh:{main}:wake"], [n]) for n in range(100)))
        await eventually(lambda: len(heard) == 100)
        assert told == [message for _, message in heard] == [b"%d" % n for n in range(100)]
        await link.unsubscribe("dh:{main}:wake")
        assert await link.run("tell", ["dh:{main}:wake"], ["unheard"]) == b"unheard"
        assert await link.call("PING") == b"PONG"
        assert len(heard) == 100


async def test_subscriptions_outlive_a_connection(server: Address) -> None:
    heard: list[bytes] = []
    async with linked(server) as link, linked(server) as other:
        for channel in ("dh:{main}:a", "dh:{main}:b"):
            await link.subscribe(channel, lambda _channel, message: heard.append(message))
        await other.call("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
        await eventually(lambda: link.reconnects == 1)
        assert await other.call("SPUBLISH", "dh:{main}:a", "one") == 1
        assert await other.call("SPUBLISH", "dh:{main}:b", "two") == 1
        await eventually(lambda: heard == [b"one", b"two"])


# -- what a server may say ---------------------------------------------------------------------------------------


async def refusal(address: Address) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await Link.open(address, SCRIPTS, ONE_ATTEMPT)
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value)
    return caught.value


async def test_passwords_and_users(kind: str) -> None:
    async with running_server(kind, port=free_port(), extra=["--requirepass", "hunter2"]) as server:
        host, port = "127.0.0.1", server.port
        missing = await refusal(Address(host=host, port=port))
        assert isinstance(missing, StoreRefused) and missing.code == "NOAUTH"
        wrong = await refusal(Address(host=host, port=port, password="hunter2" * 2))
        assert isinstance(wrong, StoreRefused) and wrong.code == "WRONGPASS"
        stranger = await refusal(Address(host=host, port=port, user="ann", password="hunter2"))
        assert isinstance(stranger, StoreRefused) and "ann:***@" in str(stranger)
        async with linked(Address(host=host, port=port, password="hunter2", db=3)) as link:
            await link.call("ACL", "SETUSER", "ann", "on", ">hunter2", "~dh:*", "&dh:*", "+@all", "-get")
            await link.run("count", [KEY])
        async with linked(Address(host=host, port=port, user="ann", password="hunter2", db=3)) as link:
            assert await link.run("count", [KEY]) == 2
            with pytest.raises(StoreRefused, match="NOPERM"):
                await link.call("GET", KEY)


async def test_a_replica_is_refused(kind: str) -> None:
    async with running_server(kind, extra=["--replicaof", "127.0.0.1", "1"]) as server:
        error = await refusal(server.address)
    assert isinstance(error, StoreRefused) and error.code == "READONLY"
    assert "read-only replica" in str(error)


async def test_a_failover_is_survived(server: Address) -> None:
    async with linked(server, deadline_s=10, backoff_max_s=0.1) as link, linked(server) as admin:
        await admin.call("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreRefused) as caught:
            await link.call("SET", KEY, 1)
        assert caught.value.code == "READONLY"
        waiting = link.call("SET", KEY, 2)  # Not sent to a replica: it waits for a primary.
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await admin.call("REPLICAOF", "NO", "ONE")
        assert await waiting == b"OK"


async def test_a_full_store_is_named(kind: str) -> None:
    async with running_server(kind, extra=["--maxmemory", "1mb"]) as server, linked(server.address) as link:
        with pytest.raises(StoreRefused, match="raise its maxmemory") as caught:
            for n in range(100):
                await link.call("SET", f"dh:{{main}}:{n}", bytes(100_000))
        assert caught.value.code == "OOM"


async def test_nobody_listens() -> None:
    port = free_port()
    error = await refusal(Address(host="127.0.0.1", port=port))
    assert isinstance(error, StoreUnavailable) and not error.unknown and f"127.0.0.1:{port}" in str(error)
    error = await refusal(Address(scheme="unix", path="/nowhere/s"))
    assert isinstance(error, StoreUnavailable) and "unix:///nowhere/s" in str(error)
    error = await refusal(Address(host="no-such-host.invalid"))
    assert isinstance(error, StoreUnavailable) and "no-such-host.invalid" in str(error)


async def test_a_web_server_is_no_store() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    web = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with web:
        error = await refusal(Address(host="127.0.0.1", port=web.sockets[0].getsockname()[1]))
    assert "HTTP/1.1 400" in str(error) and "check host and port" in str(error)


async def test_the_default_server_is_found_and_serves() -> None:
    async with Embedded() as server, linked(server.address) as link:
        assert await link.run("count", [KEY]) == 1
        assert link.server.name in ("valkey", "redis")
