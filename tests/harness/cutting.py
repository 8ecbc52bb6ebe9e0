"""A proxy before a store's server that loses, on demand, one reply and the connection with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dhsched.store.link.address import Address

CHUNK_BYTES = 65_536


class Cutter:
    """Forwards everything. Once `armed`, it waits for what the server answers next, drops it and hangs up."""

    def __init__(self, server: Address) -> None:
        self.armed = False
        self.address = Address()
        self._server = server

    async def serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_unix_connection(self._server.path)
        asking = asyncio.create_task(forward(client_in, server_out))
        try:
            while data := await server_in.read(CHUNK_BYTES):
                if self.armed:
                    # The server has run the command by now: what it says about it is lost with the connection.
                    self.armed = False
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
async def cutting(server: Address) -> AsyncIterator[Cutter]:
    """A Cutter before the server at this unix socket; `address` is where it listens."""
    cutter = Cutter(server)
    listener = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    async with listener:
        cutter.address = Address(host="127.0.0.1", port=listener.sockets[0].getsockname()[1])
        yield cutter
