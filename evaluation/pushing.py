"""A pusher for the replay: items over one WebSocket to an Infer-Controller, round robin over its lives, timed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque

import aiohttp
import msgspec

from dhsched.errors import DhschedError

WINDOW = 2_000  # Items pushed and not yet answered.
FRAME_ITEMS = 50
ANSWER_S = 60.0
TEXT = "A sentence of the usual length, or thereabouts."


class Pusher:
    """Accepted items are counted with how long each took; refused ones by the code of the refusal."""

    def __init__(self, lives: list[str], socket: aiohttp.ClientWebSocketResponse) -> None:
        self.took: list[tuple[float, float]] = []  # When each accepted item was pushed, and for how many ms.
        self.refused: Counter[str] = Counter()
        self._lives = lives
        self._socket = socket
        self._sent = 0
        self._began_at: dict[str, deque[float]] = {live: deque() for live in lives}
        self._open = 0
        self._room = asyncio.Semaphore(WINDOW)
        self._hearing = asyncio.create_task(self._hear())

    @property
    def answered(self) -> int:
        return len(self.took) + self.refused.total()

    async def push(self, count: int) -> None:
        """So many items as fast as the window lets them go."""
        while count > 0:
            items = []
            for _ in range(min(FRAME_ITEMS, count)):
                async with asyncio.timeout(ANSWER_S):
                    await self._room.acquire()
                live = self._lives[self._sent % len(self._lives)]
                self._sent += 1
                self._open += 1
                self._began_at[live].append(time.monotonic())
                items.append({"live": live, "text": TEXT})
            await self._socket.send_str(msgspec.json.encode(items).decode())
            count -= len(items)

    async def finish(self) -> None:
        give_up = time.monotonic() + ANSWER_S
        while self._open and not self._hearing.done():
            if time.monotonic() > give_up:
                raise DhschedError(f"{self._open} pushes were not answered within {ANSWER_S:g} s")
            await asyncio.sleep(0.01)
        await self._socket.close()
        await self._hearing

    async def _hear(self) -> None:
        async for message in self._socket:
            now = time.monotonic()
            for answer in msgspec.json.decode(message.data):
                # The answers of one live come in the order in which it was sent to.
                began = self._began_at[answer["live"]].popleft()
                self._open -= 1
                self._room.release()
                if answer.get("problem") is None:
                    self.took.append((began, (now - began) * 1e3))
                else:
                    self.refused[answer["problem"]["code"]] += 1
