"""A WebSocket server that takes what a publisher sends, as a room would."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web


@dataclass
class Room:
    """What arrived, and the connections it came on."""

    url: str = ""
    tokens: list[str] = field(default_factory=list)
    begins: list[dict[str, object]] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    refuse: bool = False
    reading: asyncio.Event = field(default_factory=asyncio.Event)  # Not set: it takes nothing from its connections.

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers["Authorization"])
        if self.refuse:
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.begins.append(json.loads(await socket.receive_str()))
        self.sockets.append(socket)
        await self.reading.wait()
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                self.frames.append(message.data)
        return socket


@contextlib.asynccontextmanager
async def running(room: Room, *, reads: bool = True) -> AsyncIterator[Room]:
    if reads:
        room.reading.set()
    app = web.Application()
    app.router.add_get("/v1/publish", room.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    room.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield room
    finally:
        room.reading.set()
        await runner.cleanup()
