"""The WebSocket server of all roles.

A peer may send anything, so the size of a frame is bounded, and compression is refused: 4 kB that inflate to 4 MB would
cost their sender nothing. A broken connection is a normal end and no error: a ping that cannot be answered any more is
dropped, and the next `receive` returns that the socket is closed.
"""

from __future__ import annotations

import contextlib

from aiohttp import web

from dhsched.web.problems import Problem


class ServedSocket(web.WebSocketResponse):
    """The WebSocket of one peer, which ignores pings on a broken connection."""

    async def pong(self, message: bytes = b"") -> None:
        with contextlib.suppress(ConnectionError):
            await super().pong(message)


def check_upgrade(request: web.Request) -> None:
    """Raise Problem BAD_REQUEST if the request cannot be upgraded to a WebSocket."""
    if not web.WebSocketResponse().can_prepare(request):
        raise Problem("BAD_REQUEST", f"{request.path} is a WebSocket; open it as one")


async def upgrade(
    request: web.Request, *, heartbeat_s: float, frame_bytes_max: int, close_s: float = 10.0
) -> ServedSocket | None:
    """Upgrade the request to a WebSocket and return it; None if its client has disconnected already.

    After a close by this side, the peer has `close_s` to close as well.
    """
    socket = ServedSocket(heartbeat=heartbeat_s, max_msg_size=frame_bytes_max, compress=False, timeout=close_s)
    try:
        await socket.prepare(request)
    except ConnectionError:
        return None
    return socket
