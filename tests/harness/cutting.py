"""Proxies before a server that lose, on demand, a reply and the connection with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

CHUNK_BYTES = 65_536


class Cutter:
    """Forwards everything. Once `armed`, it waits for what the server answers next, drops it and hangs up; with `nth`,
    also in place of the nth piece of each connection. The server has done by then what it was asked."""

    def __init__(self, nth: int = 0) -> None:
        self.armed = False
        self.cut = 0
        self.port = 0
        self._nth = nth

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(
        self,
        client_in: asyncio.StreamReader,
        client_out: asyncio.StreamWriter,
        server_in: asyncio.StreamReader,
        server_out: asyncio.StreamWriter,
    ) -> None:
        asking = asyncio.create_task(forward(client_in, server_out))
        pieces = 0
        try:
            while data := await server_in.read(CHUNK_BYTES):
                pieces += 1
                if self.armed or pieces == self._nth:
                    self.armed = False
                    self.cut += 1
                    break
                client_out.write(data)
        finally:
            asking.cancel()
            for end in (client_out, server_out):
                end.transport.abort()


async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK_BYTES):
        target.write(data)
    target.close()


@asynccontextmanager
async def cutting(connect: Callable[[], Awaitable[Any]], nth: int = 0) -> AsyncIterator[Cutter]:
    """A Cutter before the server that `connect` reaches; it listens on `port` of the loopback address."""
    cutter = Cutter(nth)

    async def serve(*client: Any) -> None:
        await cutter.serve(*client, *await connect())

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        cutter.port = listener.sockets[0].getsockname()[1]
        yield cutter
