"""A TCP proxy that can treat its connections badly: cut, drop, delay, refuse, and leave one side open.

TCP loses no bytes of a connection that lives, so what is dropped ends with its connection. A half-open connection is
one whose client has gone, and come back by another, while the server still has it and is handed the client's last
bytes late: the nearest that TCP comes to a message that arrives twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

CHUNK_BYTES = 65_536
CONNECT_S = 2.0
GATHER_S = 0.2  # For a half-open connection to have something in hand.
LINGER_S = 0.3  # For the last bytes of one to be taken.


class Pipe:
    """One connection through the proxy: what either side says goes to the other, past the gate."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.doomed = False  # What it carries from now on is lost.
        self.gate = asyncio.Event()
        self.gate.set()
        self._proxy = proxy

    async def forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK_BYTES):
            if self._proxy.delay_s:
                await asyncio.sleep(self._proxy.delay_s)
            await self.gate.wait()
            if self.doomed:
                return
            target.write(data)
            await target.drain()

    def abort(self) -> None:
        for end in (self.client, self.server):
            end.transport.abort()


class Proxy:
    """Listens on a port of its own and forwards to `target`, a port of the loopback address."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.target = target
        self.port = 0
        self.delay_s = 0.0
        self.refusing = False
        self.dropping = False
        self.pipes: set[Pipe] = set()
        self._listener: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in [*self._serving]:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # The other side is gone, or we are.
        finally:
            self._serving.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            return
        async with asyncio.timeout(CONNECT_S):
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        pipe = Pipe(self, writer, server_writer)
        if self.dropping:
            pipe.doomed = True
            pipe.gate.clear()
        self.pipes.add(pipe)
        ways = [
            asyncio.create_task(pipe.forward(reader, server_writer)),
            asyncio.create_task(pipe.forward(server_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if not pipe.gate.is_set():
                await pipe.gate.wait()
                await asyncio.sleep(LINGER_S)
        finally:
            self.pipes.discard(pipe)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            pipe.abort()

    # -- faults

    def cut(self, chosen: Callable[[], bool]) -> None:
        """Reset connections, each or not by chance."""
        for pipe in [*self.pipes]:
            if chosen():
                pipe.abort()

    def redirect(self, target: int) -> None:
        """Forward to another port from now on, and reset all connections: an address that moves to another server."""
        self.target = target
        self.cut(lambda: True)

    async def drop(self, seconds: float) -> None:
        """A network that swallows: nothing arrives, nobody is told. In the end the connections are reset."""
        self.dropping = True
        self._close_gates(doomed=True)
        await asyncio.sleep(seconds)
        self.dropping = False
        for pipe in [*self.pipes]:
            if pipe.doomed:
                pipe.abort()
                pipe.gate.set()

    async def delay(self, seconds: float, by_s: float) -> None:
        self.delay_s = by_s
        await asyncio.sleep(seconds)
        self.delay_s = 0.0

    async def refuse(self, seconds: float) -> None:
        """Nobody new gets in, and nobody stays."""
        self.refusing = True
        self.cut(lambda: True)
        await asyncio.sleep(seconds)
        self.refusing = False

    async def half_open(self, seconds: float) -> None:
        """The clients lose their connections and make others; the server keeps the old ones, with late last bytes."""
        pipes = self._close_gates(doomed=False)
        await asyncio.sleep(GATHER_S)
        for pipe in pipes:
            pipe.client.transport.abort()
        await asyncio.sleep(seconds)
        for pipe in pipes:
            pipe.gate.set()

    def _close_gates(self, *, doomed: bool) -> list[Pipe]:
        pipes = [*self.pipes]
        for pipe in pipes:
            pipe.doomed = pipe.doomed or doomed
            pipe.gate.clear()
        return pipes

    def heal(self) -> None:
        self.delay_s, self.refusing, self.dropping = 0.0, False, False
        for pipe in [*self.pipes]:
            if not pipe.gate.is_set():
                pipe.gate.set()
                pipe.abort()


async def stopped(proxies: list[Proxy]) -> None:
    with contextlib.suppress(OSError):
        await asyncio.gather(*(proxy.stop() for proxy in proxies))
