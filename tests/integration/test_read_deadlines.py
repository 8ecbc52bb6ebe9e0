"""Who sends slowly, or nothing, keeps nobody else out: heads, bodies and idle connections have deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from dhsched.dispatch import worker_link
from dhsched.links import messages
from dhsched.web import Service, event_stream, make_app, reading, serve
from dhsched.web.minting import MINT
from tests.harness.fleet import Record, ended, fleet, until
from tests.harness.processes import start
from tests.harness.servers import empty_server
from tests.harness.theatre import theatre

HEAD = b"GET /healthz HTTP/1.1\r\n"
HALF = b'{"text": "the other half never'


async def raw(url: str, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(sent)
    return reader, writer


def post(url: str, kind: str = "application/json", length: int = 1_000) -> bytes:
    parts = urlsplit(url)
    lines = (
        f"POST {parts.path} HTTP/1.1",
        f"Host: {parts.netloc}",
        f"Content-Type: {kind}",
        f"Content-Length: {length}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + HALF


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Everything until the server ends the connection."""
    async with asyncio.timeout(20):
        return await reader.read(-1)


@asynccontextmanager
async def half_sent(url: str, count: int, kind: str = "application/json") -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(count):
            _, writer = await raw(url, post(url, kind))
            stack.callback(writer.close)
        yield


async def status(http: aiohttp.ClientSession, method: str, url: str, body: Any = None) -> int:
    async with http.request(method, url, json=body) as response:
        return response.status


async def test_a_slow_body_keeps_no_other_caller_out(tmp_path: Path) -> None:
    async with fleet(tmp_path, in_flight_max=4, replica={"in_flight_max": 4}) as f:
        await f.start_worker(Record(), "w1")
        await f.create("a")
        async with (
            half_sent(f"{f.dispatch[0]}/v1/lives", 20),
            half_sent(f"{f.infer[0]}/v1/lives/a/text", 20),
        ):
            await asyncio.sleep(0.3)  # For the heads to be read.
            assert await status(f.http, "GET", f"{f.dispatch[0]}/v1/lives/a") == 200
            assert await status(f.http, "POST", f"{f.infer[0]}/v1/lives/a/text", {"text": "x"}) == 200


async def test_a_slow_body_does_not_close_a_room(tmp_path: Path) -> None:
    async with theatre(tmp_path, in_flight_max=4, body_s=0.5) as t:
        await t.fleet.start_worker(Record(), "w1")
        await t.fleet.create("demo")
        async with half_sent(t.path("text"), 20), half_sent(t.path("whep"), 20, "application/sdp"):
            await asyncio.sleep(0.3)
            assert (await t.state())["live_id"] == "demo"
        reader, writer = await raw(t.path("whep"), post(t.path("whep"), "application/sdp"))
        with contextlib.closing(writer):
            assert b" 408 " in (await until_closed(reader)).partition(b"\r\n")[0]


async def test_a_slow_body_is_answered_and_its_connection_closed(tmp_path: Path) -> None:
    async with fleet(tmp_path, replica={"body_s": 0.3}) as f:
        reader, writer = await raw(f.dispatch[0], post(f"{f.dispatch[0]}/v1/lives"))
        with contextlib.closing(writer):
            head, _, body = (await until_closed(reader)).partition(b"\r\n\r\n")
        assert b" 408 " in head.partition(b"\r\n")[0]
        problem = json.loads(body)
        assert problem["code"] == "TIMEOUT" and problem["body_s"] == 0.3


# -- connections


@asynccontextmanager
async def served(head_s: float = 10, idle_s: float = 75, raw_routes: Sequence[web.RouteDef] = ()) -> AsyncIterator[str]:
    async def ready() -> list[str]:
        return []

    app = make_app(Service(role="test", instance="t1", ready=ready), [MINT], raw_routes)
    listening = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(app, host="127.0.0.1", port=0, stop_s=1, say=listening.set_result, head_s=head_s, idle_s=idle_s)
    )
    try:
        yield await listening
    finally:
        await ended(serving)


@pytest.mark.release
@pytest.mark.parametrize("role", ["dispatch", "infer", "room"])
async def test_every_role_has_all_three_deadlines(role: str) -> None:
    """Real processes: no head, half a body, and nothing after an answer."""
    short = {f"DHSCHED_{name}_S": "1" for name in ("HEAD", "BODY", "IDLE")}
    async with empty_server("valkey") as store:
        environment = {**short, **({} if role == "room" else {"DHSCHED_STORE": store.address.url()})}
        given = () if role == "room" else ("--access", "open")
        process = await start("run", role, "--port", "0", "--log-level", "error", *given, environment=environment)
        try:
            await until(lambda: process.url, f"{role} to listen", 60)
            path = "/v1/lives" if role == "dispatch" else "/v1/lives/a/text"
            asked = f"GET /healthz HTTP/1.1\r\nHost: {urlsplit(process.url).netloc}\r\n\r\n".encode()
            for sent, answer in ((b"", b""), (HEAD, b""), (post(process.url + path), b"408"), (asked, b"200")):
                reader, writer = await raw(process.url, sent)
                with contextlib.closing(writer), contextlib.suppress(ConnectionError):
                    status_line = (await until_closed(reader)).partition(b"\r\n")[0]
                    assert answer in status_line and bool(answer) == bool(status_line), (sent, status_line)
        finally:
            await process.stop()


async def drip(writer: asyncio.StreamWriter) -> None:
    """A head that goes on for ever, a few bytes at a time."""
    with contextlib.suppress(ConnectionError):
        while not writer.is_closing():
            writer.write(b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("begun", [b"", b"\r\n\r\n", HEAD, b"\r\n\r\n" + HEAD])
@pytest.mark.parametrize("dripping", [False, True])
async def test_a_connection_that_sends_no_whole_head_is_closed(begun: bytes, dripping: bool) -> None:
    async with served(head_s=0.3) as url:
        reader, writer = await raw(url, begun)
        dripping_on = asyncio.create_task(drip(writer)) if dripping and b"GET" in begun else None
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            assert await until_closed(reader) == b""
        if dripping_on is not None:
            await dripping_on


async def test_a_connection_that_was_served_may_idle_for_longer_than_a_head_takes() -> None:
    async with served(head_s=2) as url:
        asked = f"GET /healthz HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode()
        last = asked.replace(b"Host", b"Connection: close\r\nHost")
        reader, writer = await raw(url, asked)
        with contextlib.closing(writer):
            assert b" 200 " in await reader.readline()
            await asyncio.sleep(2.5)
            writer.write(last)
            assert (await until_closed(reader)).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize("more", [b"", HEAD])
async def test_a_connection_that_idles_is_closed_in_the_end(more: bytes) -> None:
    """Also if it has begun with another head."""
    async with served(idle_s=0.3) as url:
        reader, writer = await raw(url, f"GET /healthz HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
        with contextlib.closing(writer):
            assert b" 200 " in await reader.readline()
            writer.write(more)
            assert b"HTTP/1.1" not in await until_closed(reader)


async def test_a_head_in_pieces_and_a_body_behind_it_are_served() -> None:
    async with served(head_s=5) as url:
        head = f"POST /v1/tokens HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: application/json\r\n"
        reader, writer = await raw(url, b"")
        with contextlib.closing(writer):
            for piece in (head[:30], head[30:], "Content-Length: 2\r\n\r", "\n{", "}"):
                writer.write(piece.encode())
                await writer.drain()
                await asyncio.sleep(0.02)
            assert b" 200 " in await reader.readline()


async def test_a_worker_link_that_says_nothing_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_link, "HELLO_S", 0.3)
    async with fleet(tmp_path) as f, f.http.ws_connect(f.dispatch[0] + worker_link.PATH) as socket:
        (said,) = messages.read_from_dispatch((await socket.receive(10)).data)
        assert isinstance(said, messages.Problem) and said.code == "UNAUTHORIZED"
        assert (await socket.receive(10)).type is aiohttp.WSMsgType.CLOSE


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel has no such deadline")
async def test_who_does_not_read_an_answer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TAKE_MAX_S", 1.0)
    transports: list[asyncio.Transport] = []

    async def large(request: web.Request) -> web.Response:
        assert request.transport is not None
        transports.append(request.transport)
        return web.Response(body=b"x" * 50_000_000)

    async with served(raw_routes=[web.get("/large", large, name="large")]) as url:
        _, writer = await raw(url, f"GET /large HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
        with contextlib.closing(writer):
            await until(lambda: transports and transports[0].is_closing(), "the end of the connection", 20)


async def test_a_watcher_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SEND_MAX_S", 0.2)
    gone = asyncio.Event()

    async def endless() -> AsyncIterator[list[bytes]]:
        while True:
            yield [b"x" * 1_000_000]

    async def watch(request: web.Request) -> web.StreamResponse:
        response = await event_stream.send_events(request, endless())
        gone.set()
        return response

    async def ready() -> list[str]:
        return []

    service = Service(role="test", instance="t1", ready=ready)
    app = make_app(service, [], [web.get("/watch", watch, name="watch")])
    listening = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(app, host="127.0.0.1", port=0, stop_s=1, say=listening.set_result))
    try:
        _, writer = await raw(await listening, b"GET /watch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with contextlib.closing(writer):
            await asyncio.wait_for(gone.wait(), 20)
    finally:
        await ended(serving)
