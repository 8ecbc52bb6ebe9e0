"""Deadlines for a peer's sending, so that a peer that sends slowly, or nothing, occupies no connection for long.

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
from collections.abc import Callable
from typing import cast

from dhsched.links.outbox import SEND_MAX_S

END_OF_HEAD = b"\r\n\r\n"
TAKE_MAX_S = SEND_MAX_S


def peer_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the address of a connection's peer; empty if there is none any more."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if peer else ""


class HeadDeadline(asyncio.Protocol):
    """The protocol of a new connection until its first head is complete; then `served` replaces it."""

    def __init__(
        self, served: asyncio.Protocol, head_s: float, admits: Callable[[asyncio.Protocol, str], bool]
    ) -> None:
        """`admits` gets `served` and the peer's address; a connection that it does not admit is closed at once."""
        self._served = served
        self._head_s = head_s
        self._admits = admits
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._admits(self._served, peer_of(transport)):
            self._transport.set_protocol(asyncio.Protocol())
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(self._head_s, self._transport.abort)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            taking = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(TAKE_MAX_S * 1000))
            transport.get_extra_info("socket").setsockopt(*taking)
        self._served.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        # The parser skips empty lines before a request: they are not part of a head.
        seen = self._seen + data if self._seen else data.lstrip(b"\r\n")
        if END_OF_HEAD in seen:
            self._timer.cancel()
            self._transport.set_protocol(self._served)
        self._seen = seen[1 - len(END_OF_HEAD) :]
        self._served.data_received(data)

    def eof_received(self) -> bool | None:
        return self._served.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._served.connection_lost(error)

    def pause_writing(self) -> None:
        self._served.pause_writing()

    def resume_writing(self) -> None:
        self._served.resume_writing()
