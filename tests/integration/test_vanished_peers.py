"""A peer that vanishes in the middle of what it says, or is told: its connection ends, and no error is logged.

Each is a bare TCP connection that is reset, not closed: whatever is written to it after that fails.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import structlog

from dhsched.links import messages
from dhsched.tokens import Boot
from tests.harness.fleet import PATIENCE_S, Fleet, Record, fleet, until
from tests.harness.theatre import theatre

PING, BINARY, TEXT = 0x9, 0x2, 0x1
ROUNDS = 20


class Bare:
    """One TCP connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def ask(self, request: str, *headers: str, body: bytes = b"") -> None:
        lines = [f"{request} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]
        self.writer.write("\r\n".join(lines).encode() + body)

    async def head(self) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)

    def ask_to_upgrade(self, path: str, *headers: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        asked = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}")
        self.ask(f"GET {path}", *asked, *headers)

    async def upgrade(self, path: str) -> None:
        self.ask_to_upgrade(path)
        head = await self.head()
        assert b" 101 " in head.partition(b"\r\n")[0], head

    def frame(self, kind: int, payload: bytes, cut: int | None = None) -> None:
        """Say a frame, or only the first bytes of it."""
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
        self.writer.write((bytes([0x80 | kind]) + length + bytes(4) + payload)[:cut])

    def vanish(self) -> None:
        """Reset: the other end finds out with its next read or write."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@asynccontextmanager
async def bare(url: str) -> AsyncIterator[Bare]:
    parts = urlsplit(url)
    connection = Bare(*await asyncio.open_connection(parts.hostname, parts.port))
    try:
        yield connection
    finally:
        connection.vanish()


@contextmanager
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that anybody would look into: no error in a log, no exception that nobody awaited."""
    loop, unhandled = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _loop, context: unhandled.append(context))
    try:
        with structlog.testing.capture_logs() as said, caplog.at_level(logging.WARNING):
            yield
    finally:
        loop.set_exception_handler(None)
    assert [each for each in said if each["log_level"] in ("error", "critical")] == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert unhandled == []


async def until_served_nobody(f: Fleet) -> None:
    infer = f.controllers[0]
    connections = infer.context.connections
    await until(lambda: not infer.pull_text.peers and not connections.sockets, "the end of every connection")
    await until(lambda: not connections.streams, "the end of every stream")


async def test_a_worker_vanishes_in_the_middle_of_a_frame(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with fleet(tmp_path) as f:
        store = f.controllers[0].context.store
        worker = (await store.register_worker(name="raw", boot="b1", pool="gpu", capacity=1)).worker
        await store.report(worker=worker, boot="b1")
        await f.replicas[0].fleet.refresh()
        placed = await f.create("a")
        token = f.controllers[0].pull_text.tokens.issue(Boot(worker, "b1", "raw", "gpu", 1))
        with no_errors(caplog):
            for n in range(ROUNDS):
                async with bare(f.infer[0]) as peer:
                    await peer.upgrade("/v1/pull")
                    said = messages.encode([messages.Hello(token), messages.Pull("default/a", placed["epoch"], 0)])
                    peer.frame(BINARY, said)
                    for _ in range(20):  # Each is to be answered, by which time nobody is there.
                        peer.frame(PING, b"are you there")
                    peer.frame(BINARY, said, cut=n)
                    if n % 2:
                        await peer.reader.read(64)
                    await peer.writer.drain()
                    assert (await f.push("a", f"t{n}"))[0] == 200  # It has something to be sent.
            await until_served_nobody(f)


@pytest.mark.parametrize("path", ["/v1/stream?producer=p", "/v1/lives/a/stream?producer=p"])
async def test_an_app_vanishes_while_its_items_are_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async with fleet(tmp_path) as f:
        await f.controllers[0].context.store.register_worker(name="raw", boot="b1", pool="gpu", capacity=1)
        with no_errors(caplog):
            for n in range(ROUNDS):
                async with bare(f.infer[0]) as peer:
                    await peer.upgrade(path)
                    for i in range(20):
                        peer.frame(TEXT, b'{"live": "a", "text": "x", "n": %d}' % (i + 1))
                        peer.frame(PING, b"")
                    peer.frame(TEXT, b'{"text": "half', cut=n)
                    await peer.writer.drain()
                    await asyncio.sleep(0.002 * (n % 3))
            await until_served_nobody(f)


@pytest.mark.release
async def test_a_watcher_and_a_pusher_vanish(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with fleet(tmp_path, watch_s=0.02) as f:
        store = f.controllers[0].context.store
        worker = (await store.register_worker(name="raw", boot="b1", pool="gpu", capacity=1)).worker
        await store.report(worker=worker, boot="b1")
        await f.replicas[0].fleet.refresh()
        await f.create("a")
        with no_errors(caplog):
            for n in range(ROUNDS):
                async with bare(f.infer[0]) as watcher:
                    watcher.ask("GET /v1/lives/a/events")
                    await watcher.head()
                body = b'{"text": "half a bo'
                async with bare(f.infer[0]) as pusher:
                    length = f"Content-Length: {len(body) + 9 * (n % 2)}"
                    pusher.ask("POST /v1/lives/a/text", "Content-Type: application/json", length, body=body)
                    await pusher.writer.drain()
            await until_served_nobody(f)


async def test_a_worker_vanishes_from_its_replica(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with fleet(tmp_path) as f:
        with no_errors(caplog):
            for n in range(ROUNDS):
                async with bare(f.dispatch[0]) as peer:
                    await peer.upgrade("/v1/workers/link")
                    peer.frame(
                        BINARY,
                        messages.encode([messages.Register("w", "boot", "gpu", 1, "", ""), messages.Report(0, 0)]),
                    )
                    for _ in range(20):
                        peer.frame(PING, b"")
                    peer.frame(BINARY, messages.encode([messages.Report(0, 0)]), cut=n)
                    if n % 2:
                        await peer.reader.read(64)
                    await peer.writer.drain()
            await until(lambda: not f.replicas[0].service.load.total, "the end of every connection")


async def test_a_publisher_vanishes_while_dispatch_is_asked_about_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with theatre(tmp_path) as at:
        await at.fleet.start_worker(Record(), "w")
        placed = await at.fleet.create("demo")
        token = at.publish(placed["worker"], placed["epoch"]).token
        with no_errors(caplog):
            for n in range(ROUNDS):
                async with bare(at.url) as peer:
                    peer.ask_to_upgrade("/v1/publish", f"Authorization: Bearer {token}")
                    await peer.writer.drain()
                    await asyncio.sleep(0.001 * n)
            await until(lambda: not at.room.rooms.publishers, "the end of every connection")
            await asyncio.sleep(0.1)  # For what is still asked.
