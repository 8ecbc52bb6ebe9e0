"""One key, or one address, takes no more than its share while others want theirs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import Any

import pytest
from aiohttp import web

from dhsched.dispatch.api import followers
from dhsched.dispatch.app import run_dispatch
from dhsched.settings import DispatchSettings
from dhsched.store.server.embedded import Embedded
from dhsched.web.running import listening
from dhsched.web.turns import STRANGERS, TICK_MAX
from tests.harness.fleet import until, until_so
from tests.harness.keyed import keyed
from tests.harness.servers import empty_server


async def test_a_busy_key_leaves_places_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async with empty_server("valkey") as server, keyed(server.address, in_flight_max=8) as at:
        busy, quiet = await at.role("app", tenant="one"), await at.role("app", tenant="two")
        load, records = at.api.context.service.load, at.api.context.records
        go_on, real = asyncio.Event(), records.lives.get

        async def slow(*given: Any, **named: Any) -> Any:
            await go_on.wait()
            return await real(*given, **named)

        monkeypatch.setattr(records.lives, "get", slow)
        asked = [asyncio.create_task(at.ask("GET", f"/v1/lives/l{n}", busy)) for n in range(6)]
        await until(lambda: load.total == 4 and sum(each.done() for each in asked) == 2, "refusals past half")
        refused = [each.result() for each in asked if each.done()]
        assert {(status, body["code"], body["in_flight_max"]) for status, body in refused} == {(503, "BUSY", 8)}
        other = asyncio.create_task(at.ask("GET", "/v1/lives/l", quiet))
        await until(lambda: load.total == 5, "the other key's request")
        go_on.set()
        assert [(await each)[0] for each in (*asked, other)].count(404) == 5
        assert load.total == 0
        async with at.api.client.get("/metrics", headers=await at.role("metrics")) as response:
            assert "dhsched_requests_over_share_total 2.0" in await response.text()


async def test_a_tenant_with_many_requests_lets_others_begin() -> None:
    """The loop's ticks are held back, as if each took long: another tenant's push waits for one tick, not for all."""
    async with empty_server("valkey") as server, keyed(server.address) as at:
        busy, quiet = await at.role("app", tenant="one"), await at.role("app", tenant="two")
        turns = at.infer_context.service.load.turns
        held: list[Any] = []
        for shown in (busy, quiet):
            assert (await at.ask("POST", "/v1/lives/L/text", shown, {"text": "a"}, at="infer"))[0] == 404
        await until(lambda: not turns._ticking, "an idle loop")
        turns._call_soon = held.append
        asked = [
            asyncio.create_task(at.ask("POST", "/v1/lives/L/text", busy, {"text": "a"}, at="infer")) for _ in range(30)
        ]
        await until(lambda: sum(map(len, turns.waiting.values())) == 30 - TICK_MAX, "requests that wait")
        other = asyncio.create_task(at.ask("POST", "/v1/lives/L/text", quiet, {"text": "a"}, at="infer"))
        forged = asyncio.create_task(at.ask("GET", "/v1/lives/L/events", {"Authorization": "Bearer x.y.z"}, at="infer"))
        await until(lambda: {*turns.waiting} == {"one", "two", STRANGERS}, "requests of others that wait")
        held.pop()()
        assert (await asyncio.wait_for(other, 60))[0] == 404
        assert len(turns.waiting["one"]) == 30 - TICK_MAX - (TICK_MAX - 1) and not forged.done()
        turns._call_soon = None
        held.pop()()
        assert [(await each)[0] for each in (*asked, forged)] == [404] * 30 + [401]
        async with at.infer.get("/metrics", headers=await at.role("metrics")) as response:
            assert f"dhsched_requests_waited_total {30.0 - TICK_MAX + 2}" in await response.text()


async def test_a_key_has_so_many_long_connections() -> None:
    async with empty_server("valkey") as server, keyed(server.address, connections_per_key_max=2) as at:
        one, two = await at.role("app", tenant="one"), await at.role("app", tenant="two")
        async with contextlib.AsyncExitStack() as stack:
            for shown in (one, one, two):
                await stack.enter_async_context(at.infer.ws_connect("/v1/stream", headers=shown))
            status, problem = await at.ask("GET", "/v1/stream", one, at="infer")
            assert (status, problem["code"], problem["connections_max"]) == (503, "BUSY", 2)
        connections = at.infer_context.service.connections
        await until(lambda: not connections._by_key, "the end of the connections")
        async with at.infer.ws_connect("/v1/stream", headers=one):
            assert [*connections._by_key.values()] == [1]


async def test_a_key_has_its_share_of_the_event_feed_and_the_feed_counts_as_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followers, "FOLLOWERS_MAX", 4)
    async with empty_server("valkey") as server, keyed(server.address, connections_per_key_max=3) as at:
        stream = {"Accept": "text/event-stream"}
        one, two = [{**await at.role("reader"), **stream} for _ in range(2)]
        async with contextlib.AsyncExitStack() as stack:
            for shown in (one, one, two):
                async with asyncio.timeout(60):
                    opened = await stack.enter_async_context(at.api.client.get("/v1/events", headers=shown))
                assert opened.status == 200
            assert sorted(at.api.context.service.connections._by_key.values()) == [1, 2]
            status, problem = await at.ask("GET", "/v1/events", one)
            assert (status, problem["code"], problem["followers_max"]) == (503, "BUSY", 4)
        connections = at.api.context.service.connections
        await until(lambda: not connections._by_key, "the end of the streams")
        connections.most_per_key = 1
        async with at.api.client.get("/v1/events", headers=one) as opened:
            assert opened.status == 200
            status, problem = await at.ask("GET", "/v1/events", one)
            assert (status, problem["connections_max"]) == (503, 1)


async def test_a_flood_of_connections_is_accepted_in_few_ticks() -> None:
    """Connections that came while the loop was busy: a new one does not wait for a tick for each of them."""
    loop = asyncio.get_running_loop()
    async with listening(web.Application(), host="127.0.0.1", port=0) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(socket.create_connection(address)) for _ in range(64)]
            peers[-1].setblocking(False)
            peers[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = asyncio.create_task(loop.sock_recv(peers[-1], 100))
            ticks = 0
            while not answer.done():
                ticks += 1
                time.sleep(0.001)  # noqa: ASYNC251  A busy loop.
                await asyncio.sleep(0)
            assert answer.result().startswith(b"HTTP/1.1 404")
            assert ticks < 40, "one connection was accepted in a tick"


async def test_an_address_has_so_many_connections_at_dispatch() -> None:
    async with empty_server("valkey") as server:
        await one_address(server)


async def one_address(server: Embedded) -> None:
    settings = DispatchSettings(
        store=server.address.url(), port=0, access="open", connections_per_address_max=2, stop_s=0
    )
    stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
    running = asyncio.create_task(run_dispatch(settings, stop, url.set_result))
    try:
        port = int((await asyncio.wait_for(url, 60)).rpartition(":")[2])

        async def answer() -> tuple[bytes, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                return await reader.readline(), writer
            except ConnectionError:
                return b"", writer

        opened = [await answer() for _ in range(4)]
        assert [bool(line) for line, _ in opened] == [True, True, False, False]
        opened[0][1].close()
        await until_so(answer, lambda found: found[0], "a place of the connection that ended")
    finally:
        stop.set()
        await running
