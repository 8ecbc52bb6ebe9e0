"""Connections are read a part in each tick of the event loop, and everything arrives in order, on both event loops."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from dhsched.web.reading import READ_BYTES, BoundedReading, new_buffer
from dhsched.web.running import listening, product_loop

SENT = bytes(range(256)) * 20_000  # More than the buffers of the parser and of the kernel have space for.


class Transport:
    """A transport that notes whether it is being read."""

    def __init__(self) -> None:
        self.reading, self.closing = True, False

    def get_extra_info(self, _name: str) -> Any:
        return SimpleNamespace(setsockopt=lambda *_option: None)

    def is_reading(self) -> bool:
        return self.reading

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def abort(self) -> None:
        self.closing = True

    def resume_reading(self) -> None:
        assert not self.closing
        self.reading = True


class Served(SimpleNamespace):
    """The part of aiohttp's protocol that is used."""

    def __init__(self) -> None:
        super().__init__(_reading_paused=False, _buffer_paused=False, got=[], connection_made=lambda _transport: None)

    def data_received(self, data: bytes) -> None:
        self.got.append(data)


@pytest.fixture
async def parts() -> tuple[Transport, Served, Callable[[bytes], None]]:
    buffer, transport, served = new_buffer(), Transport(), Served()
    reading = BoundedReading(cast(Any, served), buffer, head_s=60)
    reading.connection_made(cast(Any, transport))

    def receive(data: bytes) -> None:
        reading.get_buffer(-1)[: len(data)] = data
        reading.buffer_updated(len(data))

    return transport, served, receive


async def test_a_full_buffer_pauses_for_a_tick(parts: tuple[Transport, Served, Callable[[bytes], None]]) -> None:
    transport, served, receive = parts
    receive(b"short")
    assert transport.reading
    receive(b"x" * READ_BYTES)
    assert not transport.reading
    await asyncio.sleep(0)
    assert transport.reading and served.got == [b"short", b"x" * READ_BYTES]


@pytest.mark.parametrize("flag", ["_reading_paused", "_buffer_paused"])
async def test_who_has_paused_resumes(parts: tuple[Transport, Served, Callable[[bytes], None]], flag: str) -> None:
    transport, served, receive = parts
    setattr(served, flag, True)
    receive(b"x" * READ_BYTES)
    await asyncio.sleep(0)
    assert not transport.reading


async def test_a_closing_connection_is_not_resumed(parts: tuple[Transport, Served, Callable[[bytes], None]]) -> None:
    transport, _, receive = parts
    receive(b"x" * READ_BYTES)
    transport.closing = True
    await asyncio.sleep(0)
    assert not transport.reading


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, product_loop()])
def test_everything_arrives_and_others_are_served_meanwhile(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    ticks = 0

    async def take(request: web.Request) -> web.Response:
        """Read slowly at first, so that the parser pauses too."""
        nonlocal ticks
        found = hashlib.sha256()
        while part := await request.content.readany():
            if ticks < 10:
                await asyncio.sleep(0.005)
            ticks += 1
            found.update(part)
        return web.Response(text=found.hexdigest())

    async def main() -> None:
        app = web.Application()
        app.add_routes([web.post("/", take)])
        async with listening(app, host="127.0.0.1", port=0) as url, aiohttp.ClientSession() as http:
            for body in (SENT, as_chunks(SENT)):
                async with http.post(url, data=body) as response:
                    assert await response.text() == hashlib.sha256(SENT).hexdigest()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert ticks >= 2 * len(SENT) // (16 * READ_BYTES)


async def as_chunks(data: bytes) -> Any:
    for first in range(0, len(data), 7_000):
        yield data[first : first + 7_000]
