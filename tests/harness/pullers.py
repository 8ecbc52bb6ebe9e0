"""What tests do by hand: pull with a token of their choice; make a store's server lose connections or scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from dhsched.links import messages
from dhsched.store.link.address import Address

KILL_PUBSUB = b"CLIENT KILL TYPE pubsub SKIPME yes\r\n"
FLUSH_SCRIPTS = b"SCRIPT FLUSH\r\n"


@asynccontextmanager
async def puller(
    http: aiohttp.ClientSession, infer: str, hello: str, *said: messages.Message
) -> AsyncIterator[asyncio.Queue[Any]]:
    """A bare connection to /v1/pull; what it hears comes into a queue."""
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with http.ws_connect(f"{infer}/v1/pull") as socket:
        await socket.send_bytes(messages.encode([messages.Hello(hello), *said]))

        async def listen() -> None:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    for reply in messages.read_infer_says(message.data):
                        heard.put_nowait(reply)

        listening = asyncio.create_task(listen())
        try:
            yield heard
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


async def tell_server(server: Address, command: bytes, every_s: float) -> None:
    """Say it to the store's server at this unix socket, again and again."""
    reader, writer = await asyncio.open_unix_connection(server.path)
    try:
        while True:
            writer.write(command)
            await reader.readline()
            await asyncio.sleep(every_s)
    finally:
        writer.transport.abort()
