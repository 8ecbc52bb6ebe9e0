"""The Python client against real replicas: what it repeats, where it goes, and what it raises."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from dhsched.client import Client, Refused, Unreachable, following
from dhsched.client import stream as stream_module
from dhsched.errors import BadAddress
from dhsched.local.ports import free_port
from tests.harness.clients import client_of, cut_off
from tests.harness.fleet import Record, fleet, until


async def test_a_quiet_live_is_followed_over_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life count: a connection that breaks after a long time without events is made anew, not given up."""
    monkeypatch.setattr(following, "SILENCE_S", 2.0)
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 x\r\nContent-Type: text/event-stream\r\n\r\n")
        if connections == 1:
            for _ in range(13):
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(0.2)
        else:
            writer.write(b"event: ended\ndata: {}\n\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Client(infer=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", deadline_s=2) as client:
        assert [event.name async for event in client.events("L")] == ["ended"]
    assert connections == 2


async def test_a_live_from_create_to_end(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path) as f, client_of(f) as client:
        await f.start_worker(record, "w1")
        await f.start_worker(record, "w2")
        made = await client.create("demo", metadata={"a": 1}, wait_s=10)
        events: list[str] = []

        async def follow() -> None:
            async for event in client.events(made.live_id):
                events.append(event.name)

        following = asyncio.create_task(follow())
        assert (await client.push(made.live_id, "one", boundary=True)).seq == 1
        await until(lambda: record.texts(made.live_id) == ["one"], "the item")
        await until(lambda: "claimed" in events, "the claim among the events")
        moved = await client.reassign(made.live_id)
        assert moved.worker != made.worker and moved.epoch > made.epoch
        assert (await client.interrupt(made.live_id, "stop")).seq == 2
        assert (await client.configure(made.live_id, {"voice": "b"})).seq == 3
        live = await client.get(made.live_id)
        assert (live.worker, live.metadata, live.appended) == (moved.worker, {"a": 1}, 3)
        assert [row.epoch for row in (await client.history(made.live_id)).generations] == [moved.epoch, made.epoch]
        assert [row.live_id async for row in client.lives(state="open")] == [made.live_id]
        assert {row.status async for row in client.workers(pool="gpu")} == {"ready"}
        minted = await client.viewer_token(made.live_id, ["watch", "say"], identity="Zoë", say_rate_per_s=1)
        assert minted.link("https://room/") == f"https://room/live/{made.live_id}#token={minted.token}"
        assert (await client.end(made.live_id)).state == "ended"
        await asyncio.wait_for(following, 60)
        assert events[0] == "committed" and events[-1] == "ended" and "claimed" in events
        with pytest.raises(Refused) as refused:
            await client.push(made.live_id, "too late")
        assert (refused.value.code, refused.value.status) == ("ENDED", 410)


async def test_a_dead_replica_is_passed_over_and_a_repeated_call_is_one_call(tmp_path: Path) -> None:
    """The answer of the first try is cut off each time; the client asks the next replica with the same id."""
    async with fleet(tmp_path, dispatch=2, infer=2) as f:
        await f.start_worker(Record(), "w1")
        for replica in f.replicas:  # A create that is refused makes nothing, and is no call that is repeated.
            await until(replica.fleet.free_slots, "a free slot in the view of each replica")
        async with (
            cut_off(f.dispatch[0]) as dispatch,
            cut_off(f.infer[0]) as infer,
            Client([dispatch.url, f.dispatch[1]], [infer.url, f.infer[1]], deadline_s=10) as client,
        ):
            made = await client.create("demo", wait_s=10)
            assert dispatch.cut == 1 and made.again
            pushed = await client.push(made.live_id, "once")
            assert infer.cut == 1 and pushed.duplicate
            assert (await client.get(made.live_id)).appended == 1
            assert [row.live_id async for row in client.lives()] == [made.live_id]


async def test_a_stream_is_exact_over_lost_connections(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path, infer=2) as f:
        await f.start_worker(record, "w1")
        async with (
            cut_off(f.infer[0], 4) as first,
            cut_off(f.infer[1], 5) as second,
            Client(f.dispatch, [first.url, second.url], deadline_s=10) as client,
        ):
            live = (await client.create("demo", wait_s=10)).live_id
            async with client.stream(live, in_flight_max=8) as stream:
                for n in range(60):
                    await stream.send(f"t{n}", boundary=True)
            assert (await client.get(live)).appended == 60
            assert first.cut + second.cut >= 2, "the connections were to be lost"
        await until(lambda: len(record.texts(live)) >= 60, "all items")
        assert record.texts(live) == [f"t{n}" for n in range(60)]


async def test_a_stream_leaves_a_replica_that_answers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a frozen process: its kernel still accepts the connection."""
    monkeypatch.setattr(stream_module, "CONNECT_S", 0.2)

    async def read(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    silent = await asyncio.start_server(read, "127.0.0.1", 0)
    record = Record()
    async with silent, fleet(tmp_path) as f:
        await f.start_worker(record, "w1")
        frozen = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        async with Client(f.dispatch, [frozen, *f.infer], deadline_s=30) as client:
            live = (await client.create("demo", wait_s=10)).live_id
            async with asyncio.timeout(30), client.stream(live) as stream:
                assert (await stream.push("one")).seq == 1


async def test_a_stream_that_was_idle_for_long_outlives_its_connection() -> None:
    """The deadline is for items that wait: a connection that had none to answer is replaced like any other."""
    idle, connections = asyncio.Event(), 0

    async def serve(request: web.Request) -> web.WebSocketResponse:
        nonlocal connections
        connections += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if connections == 1:
            await idle.wait()
            return socket
        async for message in socket:
            await socket.send_json([{"live": "L", "n": item["n"], "seq": item["n"]} for item in message.json()])
        return socket

    app = web.Application()
    app.router.add_get("/v1/lives/L/stream", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with Client(url, key="", deadline_s=0.5) as client, client.stream("L") as stream:
            await until(lambda: connections == 1, "a connection")
            await asyncio.sleep(1.0)  # Longer than the deadline, and nothing is sent.
            idle.set()
            await until(lambda: connections == 2, "the next connection")
            assert (await stream.push("one")).seq == 1
    finally:
        await runner.cleanup()


async def test_a_stream_to_nowhere_ends_with_the_reason(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f, client_of(f, deadline_s=1.0) as client:
        with pytest.raises(Refused, match="NOT_FOUND"):
            async with client.stream("nobody") as stream:
                await stream.push("hello")
    async with Client(infer=f"http://127.0.0.1:{free_port()}", deadline_s=1.0) as client:
        with pytest.raises(Unreachable, match="nothing was stored for 1 s"):
            async with client.stream("nobody") as stream:
                await stream.push("hello")


async def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with Client(url, url, deadline_s=0.3) as client:
        with pytest.raises(Unreachable, match=r"no dispatch answered within 0.3 s"):
            await client.get("L")
    with pytest.raises(BadAddress, match="must look like"):
        async with Client("127.0.0.1:7400"):
            pass


async def test_what_a_load_balancer_says_is_tried_again() -> None:
    """502 without a problem in it: the replica behind it is not there yet."""
    answers = iter([web.Response(status=502, text="<html>"), web.json_response({"lives": [], "next": None})])

    async def serve(_request: web.Request) -> web.Response:
        return next(answers)

    app = web.Application()
    app.router.add_get("/v1/lives", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with Client(f"http://127.0.0.1:{port}", deadline_s=5) as client:
            assert [row async for row in client.lives()] == []
    finally:
        await runner.cleanup()
