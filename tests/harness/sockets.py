"""WebSockets in memory, between controllers and pull clients of one process: they can be cut at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import WSMessage, WSMsgType

from dhsched.infer.pull import PullText


class MemorySocket:
    """One end of a connection. `cut` is what a pulled cable is, except that both ends find out."""

    def __init__(self) -> None:
        self.other: MemorySocket
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send_bytes(self, data: bytes, /) -> None:
        self.other._frames.put_nowait(data)

    def __aiter__(self) -> AsyncIterator[WSMessage]:
        return self

    async def __anext__(self) -> WSMessage:
        frame = await self._frames.get()
        if frame is None:
            raise StopAsyncIteration
        return WSMessage(WSMsgType.BINARY, frame, None)

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        """What is on its way is lost."""
        for end in (self, self.other):
            while not end._frames.empty():
                end._frames.get_nowait()
            end._frames.put_nowait(None)


class Network:
    """The controllers by URL. A controller that is down cannot be reached."""

    def __init__(self) -> None:
        self.controllers: dict[str, PullText] = {}
        self.sockets: list[MemorySocket] = []
        self._serving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def dial(self, url: str) -> AsyncIterator[MemorySocket]:
        pulls = self.controllers.get(url)
        if pulls is None:
            raise ConnectionRefusedError(url)
        ours, theirs = MemorySocket(), MemorySocket()
        ours.other, theirs.other = theirs, ours
        task = asyncio.create_task(pulls.serve_socket(theirs))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self.sockets.append(ours)
        try:
            yield ours
        finally:
            ours.cut()
            self.sockets.remove(ours)

    async def close(self) -> None:
        for task in [*self._serving]:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
