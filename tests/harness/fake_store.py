"""A store that misbehaves on demand: it greets like a server and answers as the test says."""

import asyncio
from collections.abc import Callable
from hashlib import sha1
from types import TracebackType
from typing import Self

import hiredis

from dhsched.store.link.address import Address

Answer = Callable[[list[bytes]], bytes | None]

OK = b"+OK\r\n"


def ok(_command: list[bytes]) -> bytes:
    return OK


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


def push(*words: bytes) -> bytes:
    return b">%d\r\n" % len(words) + b"".join(map(bulk, words))


class FakeStore:
    """Speaks RESP3 on a loopback port. `answer` gets each command and returns the reply's bytes, or None for silence.

    `greeting` replaces the answers to HELLO, INFO and so on, by their first word; `commands` is all that came after the
    greeting; `reads` counts the pieces in which it came.
    """

    def __init__(self, answer: Answer = ok, greeting: dict[bytes, bytes | None] | None = None) -> None:
        self.answer = answer
        self.greeting: dict[bytes, bytes | None] = {
            b"HELLO": b"%2\r\n+role\r\n+master\r\n+mode\r\n+standalone\r\n",
            b"INFO": bulk(b"# Server\r\nredis_version:7.2.0\r\n"),
            b"SELECT": OK,
            **(greeting or {}),
        }
        self.connections: list[asyncio.StreamWriter] = []
        self.greetings: list[list[bytes]] = []
        self.commands: list[list[bytes]] = []
        self.reads = 0
        self.reading = asyncio.Event()
        self.reading.set()
        self.port = 0
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> Address:
        return Address(host="127.0.0.1", port=self.port)

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.vanish()

    async def listen(self) -> None:
        # Asking for the same port again lets the store come back where it was.
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def vanish(self) -> None:
        """Refuse connections from now on and cut those there are."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> None:
        for writer in self.connections:
            writer.transport.abort()
        self.connections.clear()

    def say(self, raw: bytes) -> None:
        """Send bytes that nobody asked for on the newest connection."""
        self.connections[-1].write(raw)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        parser = hiredis.Reader()
        while data := await reader.read(1 << 20):
            self.reads += 1
            parser.feed(data)
            while (command := parser.gets()) is not False:
                reply = self._reply(command)
                if reply is not None:
                    writer.write(reply)
            await self.reading.wait()
        writer.close()

    def _reply(self, command: list[bytes]) -> bytes | None:
        verb = command[0]
        if verb in self.greeting:
            self.greetings.append(command)
            return self.greeting[verb]
        if command[:2] == [b"SCRIPT", b"LOAD"]:
            self.greetings.append(command)
            return bulk(sha1(command[2]).hexdigest().encode())
        self.commands.append(command)
        if verb in (b"SSUBSCRIBE", b"SUNSUBSCRIBE"):
            return push(verb.lower(), command[1])
        return self.answer(command)
