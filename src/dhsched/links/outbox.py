"""The outbox of a connection: sends the messages to one peer in one tick of the event loop as one frame.

A frame per message would cost twice the CPU of an item. So messages are put here without waiting, and one task per
connection sends those that have gathered by the time it runs. While the peer reads slowly, this task waits, messages
gather, and `waiting_bytes` grows: while the outbox is `full`, callers should make no new messages for this peer. No
other connection waits. A peer that accepts no data for SEND_MAX_S is disconnected (`hang_up`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from dhsched.links.messages import FRAME_BYTES_FULL, MESSAGES_MAX, encode

OUTBOX_BYTES_FULL = 1024 * 1024  # Bytes that the transport has not taken; past this the outbox is `full`.
SEND_MAX_S = 30.0  # A peer that accepts no data for this long is disconnected.
CLOSE_S = 1.0  # A socket that does not close in good order within this time is aborted.
MESSAGE_BYTES = 64  # The bytes that a message without its payload counts as.


class Outbox:
    """The sending half of one connection. While it is `full`, callers should put no new messages; `on_drained` is
    called when it is not full any more."""

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
        self._deadline = 0.0  # Of the frame that is being sent; 0 between two frames.
        self._timer: asyncio.TimerHandle | None = None
        self._late = False

    def put(self, message: Any, payload_bytes: int = 0) -> None:
        size_bytes = MESSAGE_BYTES + payload_bytes
        self.waiting_bytes += size_bytes
        self.full = self.waiting_bytes > OUTBOX_BYTES_FULL
        if not self._messages:
            self._some.set()
        self._messages.append((message, size_bytes))

    def finish(self) -> None:
        """Let `run` return once all messages so far are sent."""
        self._closing = True
        self._some.set()

    async def run(self) -> None:
        """Send frames until `finish`. Raise the transport's error if the connection is lost, or TimeoutError."""
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                messages, self._messages = self._messages, []
                while messages:
                    messages = await self._send_some(messages)
                if self._closing and not self._messages:
                    return
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _send_some(self, messages: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """Send as many messages as fill a frame; return the rest."""
        size_bytes, count = 0, 0
        for _, one_bytes in messages:
            size_bytes, count = size_bytes + one_bytes, count + 1
            if size_bytes >= FRAME_BYTES_FULL or count == MESSAGES_MAX:
                break
        await self._send_in_time(self._encode([message for message, _ in messages[:count]]))
        self.waiting_bytes -= size_bytes
        if self.full and self.waiting_bytes <= OUTBOX_BYTES_FULL:
            self.full = False
            if self._on_drained is not None:
                self._on_drained()
        return messages[count:]

    async def _send_in_time(self, frame: bytes) -> None:
        """Send one frame; raise TimeoutError after SEND_MAX_S. One timer serves many frames: almost every frame is sent
        at once, and a timer for each would cost as much as its encoding."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._deadline = loop.time() + SEND_MAX_S
        if self._timer is None:
            self._timer = loop.call_at(self._deadline, self._cancel_if_late, task)
        try:
            await self._send(frame)
        except asyncio.CancelledError:
            if self._late and not task.uncancel():
                raise TimeoutError(f"the peer took nothing for {SEND_MAX_S:g} s") from None
            raise
        finally:
            self._deadline = 0.0

    def _cancel_if_late(self, task: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        if self._deadline and loop.time() >= self._deadline:
            self._late = True
            task.cancel()
        elif self._deadline:
            self._timer = loop.call_at(self._deadline, self._cancel_if_late, task)


class Socket(Protocol):
    """A socket that can be closed."""

    async def close(self) -> object: ...


async def hang_up(socket: Socket, sending: asyncio.Task[None], transport: asyncio.BaseTransport | None) -> None:
    """Stop sending and close the socket; abort it after CLOSE_S, because a slow reader must not delay the caller."""
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
    """Drop the connection and its unsent data: closing it would wait for the peer to read."""
    drop = getattr(transport, "abort", None)  # By name, because uvloop's transports have other classes.
    if drop is not None:
        drop()


def abort_if_failed(sending: asyncio.Task[None], transport: asyncio.BaseTransport | None) -> None:
    """Abort the connection when its sending task fails, so that the task which reads it ends too."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            abort(transport)

    sending.add_done_callback(ended)
