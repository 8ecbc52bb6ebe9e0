"""Reading from a connection: how much of it in one tick of the event loop, and how long its peer may take to send.

A peer may send faster than a tick can parse: 256 KiB of a body can be 40,000 chunks of one byte, which take the parser
20 ms, and uvloop reads up to 32 times from one connection in a tick. So a connection is read READ_BYTES at a time, and
reading pauses for a tick after each part that fills the buffer, while other connections are served. All connections of
a listener share one buffer, because each part is copied out of it at once: reading occupies no memory for a connection
that sends nothing.

A peer that sends slowly, or nothing, occupies no connection for long:

    head_s      from a new connection, and its TLS handshake, to the end of its first request's head
    body_s      for a request's body; until the body is complete the request does not count as in flight
    idle_s      from an answer to the end of the next request's head, on a connection that is kept open

When a head is late its connection is closed; when a body is late the answer is 408 TIMEOUT (endpoints.py). WebSockets
ping a silent peer (heartbeats), and have a deadline of their own for a first message that is due. A peer that accepts
nothing of its answer for TAKE_MAX_S is disconnected by the kernel, where the kernel can do this (Linux).
"""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from aiohttp.web_protocol import RequestHandler

from dhsched.links.outbox import SEND_MAX_S
from dhsched.web.proxies import AddressLimit

READ_BYTES = 16 * 1024  # What is left beyond this is read in the next tick.
END_OF_HEAD = b"\r\n\r\n"
TAKE_MAX_S = SEND_MAX_S


def new_buffer() -> memoryview:
    """Return a buffer for the connections of one event loop."""
    return memoryview(bytearray(READ_BYTES))


class BoundedReading(asyncio.BufferedProtocol):
    """The protocol of a connection: passes what it receives to `served`, a part in each tick.

    It closes the connection if the first head is not complete after `head_s`, and at once if the peer's address has as
    many connections as `limit` allows.
    """

    transport: asyncio.Transport

    def __init__(
        self, served: RequestHandler, buffer: memoryview, head_s: float, limit: AddressLimit | None = None
    ) -> None:
        self._served = served
        self._buffer = buffer
        self._head_s = head_s
        self._limit = limit
        self._site: str | None = None  # What `limit` counts this connection as; None if it does not.
        self._timer: asyncio.TimerHandle | None = None  # None once the head is complete.
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._limit is not None:
            self._site = self._limit.open(peer_of(transport))
            if self._site is None:
                self.transport.abort()
                return
        self._timer = asyncio.get_running_loop().call_later(self._head_s, self.transport.abort)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            taking = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(TAKE_MAX_S * 1000))
            transport.get_extra_info("socket").setsockopt(*taking)
        self._served.connection_made(transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        if self._timer is not None:
            self._find_end_of_head(data)
        self._served.data_received(data)
        if nbytes == READ_BYTES and self.transport.is_reading():
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def eof_received(self) -> bool | None:
        self._served.eof_received()
        return None

    def connection_lost(self, error: Exception | None) -> None:
        if self._limit is not None:
            if self._site is None:
                return  # The connection was refused, and `served` does not know of it.
            self._limit.close(self._site)
        self._stop_timer()
        self._served.connection_lost(error)

    def pause_writing(self) -> None:
        self._served.pause_writing()

    def resume_writing(self) -> None:
        self._served.resume_writing()

    def _go_on(self) -> None:
        served = self._served
        # Where `served` has paused too, because its own buffers are full, `served` resumes by itself.
        if not (served._reading_paused or served._buffer_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    def _find_end_of_head(self, data: bytes) -> None:
        # The parser skips empty lines before a request: they are not part of a head.
        seen = self._seen + data if self._seen else data.lstrip(b"\r\n")
        self._seen = seen[1 - len(END_OF_HEAD) :]
        if END_OF_HEAD in seen:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def peer_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the address of a connection's peer; empty if there is none any more."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if peer else ""
