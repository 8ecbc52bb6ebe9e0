"""What is said to one peer in one tick of the event loop goes out as one frame.

A frame per message costs twice the CPU of an item. So messages are put here without waiting, and one task per
connection sends what has gathered by the time it runs. Where the peer reads slowly that task waits for it, messages
gather, and `waiting_bytes` shows it: whoever makes new messages for this peer holds them back (`full`). Nobody else
waits. A peer that takes nothing for SEND_MAX_S is given up (`hang_up`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from dhsched.links.messages import FRAME_BYTES_FULL, MESSAGES_FULL, encode

OUTBOX_BYTES_FULL = 1024 * 1024  # Said and not yet taken over by the transport; past this the sender holds back.
SEND_MAX_S = 30.0  # For one frame.
CLOSE_S = 1.0  # For the last words.
MESSAGE_BYTES = 64  # What a message without a payload counts.


class Outbox:
    """The sending half of one connection. Whoever makes new messages for it holds them back while it is `full`;
    `on_drained` is called when it is not full any more."""

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        on_drained: Callable[[], None] | None = None,
        encode: Callable[[list[Any]], bytes] = encode,
    ) -> None:
        self.waiting_bytes = 0
        self.full = False
        self._send = send
        self._encode = encode
        self._on_drained = on_drained
        self._messages: list[tuple[Any, int]] = []
        self._some = asyncio.Event()
        self._closing = False

    def put(self, message: Any, payload_bytes: int = 0) -> None:
        size_bytes = MESSAGE_BYTES + payload_bytes
        self.waiting_bytes += size_bytes
        self.full = self.waiting_bytes > OUTBOX_BYTES_FULL
        if not self._messages:
            self._some.set()
        self._messages.append((message, size_bytes))

    def finish(self) -> None:
        """Let `run` return once everything said so far is sent."""
        self._closing = True
        self._some.set()

    async def run(self) -> None:
        """Send frames until `finish`, or until the connection is lost, which raises what the transport raises."""
        while True:
            await self._some.wait()
            self._some.clear()
            messages, self._messages = self._messages, []
            while messages:
                messages = await self._send_some(messages)
            if self._closing and not self._messages:
                return

    async def _send_some(self, messages: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """Send as many as fill a frame; return the rest."""
        size_bytes, count = 0, 0
        for _, one_bytes in messages:
            size_bytes, count = size_bytes + one_bytes, count + 1
            if size_bytes >= FRAME_BYTES_FULL or count == MESSAGES_FULL:
                break
        async with asyncio.timeout(SEND_MAX_S):
            await self._send(self._encode([message for message, _ in messages[:count]]))
        self.waiting_bytes -= size_bytes
        if self.full and self.waiting_bytes <= OUTBOX_BYTES_FULL:
            self.full = False
            if self._on_drained is not None:
                self._on_drained()
        return messages[count:]


class Socket(Protocol):
    """What can be closed."""

    async def close(self) -> object: ...


async def hang_up(socket: Socket, sending: asyncio.Task[None], transport: asyncio.BaseTransport | None) -> None:
    """Close in good order, for as long as that takes at most; then without: a slow reader must not hold us up."""
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await close_soon(socket, transport)


async def close_soon(socket: Socket, transport: asyncio.BaseTransport | None) -> None:
    closing = asyncio.ensure_future(socket.close())
    done, _ = await asyncio.wait((closing,), timeout=CLOSE_S)
    if not done:
        abort(transport)
        closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)


def abort(transport: asyncio.BaseTransport | None) -> None:
    """Drop the connection with what it still holds: closing it would wait for the peer to read."""
    drop = getattr(transport, "abort", None)  # By name: uvloop's transports are of classes of their own.
    if drop is not None:
        drop()


def abort_if_failed(sending: asyncio.Task[None], transport: asyncio.BaseTransport | None) -> None:
    """When sending ends because the peer takes nothing, whoever listens to it must find out too."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            abort(transport)

    sending.add_done_callback(ended)
