"""How a Worker opens a WebSocket to an Infer-Controller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import aiohttp

from dhsched.client.calls import bearer
from dhsched.client.http import open_socket
from dhsched.links.messages import FRAME_BYTES_MAX, HEARTBEAT_S

PULL_PATH = "/v1/pull"


def in_cell(path: str, cell: str) -> str:
    """Return the path of a link, with the cell that it is for; an empty `cell` is the only one."""
    return f"{path}?cell={cell}" if cell else path


class Socket(Protocol):
    """The methods of a WebSocket that this client uses."""

    async def send_bytes(self, data: bytes, /) -> None:
        """Send one message."""

    def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
        """Yield the messages that come."""


Dial = Callable[[str], AbstractAsyncContextManager[Socket]]
"""Opens a connection to a controller's URL."""


def dial_with(http: aiohttp.ClientSession, token: Callable[[], str], cell: Callable[[], str] = str) -> Dial:
    """Return a dial that authorizes connections with the boot's token, as the Worker's Hello does. `cell` returns the
    boot's cell, where the deployment has several."""

    @asynccontextmanager
    async def dial(url: str) -> AsyncIterator[Socket]:
        async with await open_socket(
            http,
            url.rstrip("/") + in_cell(PULL_PATH, cell()),
            heartbeat=HEARTBEAT_S,
            max_msg_size=FRAME_BYTES_MAX,
            headers=bearer(token()),
        ) as socket:
            yield socket

    return dial
