"""The WebSockets that the roles serve: one place for what holds for each of them.

A peer may say what it likes, so the size of a frame is bounded, and compression is not agreed upon: 4 kB that inflate
to 4 MB cost their sender nothing. A connection that breaks is the end of a conversation and no error: a ping that
cannot be answered any more is dropped, and the next `receive` says that the socket is closed.
"""

from __future__ import annotations

import contextlib

from aiohttp import web


class ServedSocket(web.WebSocketResponse):
    """One peer's WebSocket."""

    async def pong(self, message: bytes = b"") -> None:
        with contextlib.suppress(ConnectionError):
            await super().pong(message)


async def upgrade(
    request: web.Request, *, heartbeat_s: float, frame_bytes_max: int, close_s: float = 10.0
) -> ServedSocket | None:
    """Make the request a WebSocket; None if its client has gone by now, which is nobody's error.

    When we close it, the peer has `close_s` to close as well.
    """
    socket = ServedSocket(heartbeat=heartbeat_s, max_msg_size=frame_bytes_max, compress=False, timeout=close_s)
    try:
        await socket.prepare(request)
    except ConnectionError:
        return None
    return socket
