"""Tokens of a stream joined into items: a language model writes a few letters at a time, a runtime speaks sentences.

One item of a live is on its way to the store at a time; what arrives meanwhile is joined, so order needs no numbers. A
joined item is closed by the end of a sentence, by its age, by its size, or by an item that is not a token.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from dhsched.errors import DhschedError
from dhsched.infer.context import InferContext, new_request
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import unmarked
from dhsched.store.steps.redis import Append
from dhsched.types import Kind

SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "\n")
JOINED_BYTES_MAX = 4_096
E = TypeVar("E")


class Joined:
    """One item that is being put together, or waits for the one before it."""

    __slots__ = ("boundary", "closed", "closes_at", "kind", "numbered", "parts", "size_bytes", "tokens_so_far")

    def __init__(self, kind: Kind, payload: bytes, boundary: bool, closes_at: float) -> None:
        self.kind: Kind = kind
        self.parts = [payload]
        self.size_bytes = len(payload)
        self.boundary = boundary
        self.closes_at = closes_at
        self.closed = closes_at == 0
        self.tokens_so_far = 0
        self.numbered: tuple[str, int] = ("", 0)


class Joiner(Generic[E]):
    """The line of one live's items. `owe` makes the reply that each will get, `done` gives it."""

    def __init__(
        self,
        context: InferContext,
        live: str,
        *,
        owe: Callable[[int], E],
        done: Callable[[E, Joined, o.AppendOutcome | DhschedError], None],
    ) -> None:
        self._context = context
        self._live = live
        self._owe = owe
        self._done = done
        self._items: deque[tuple[E, Joined]] = deque()
        self._tokens = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def token(self, token: str) -> None:
        payload = token.encode()
        now = asyncio.get_running_loop().time()
        last = self._items[-1][1] if self._items else None
        if last is None or last.closed or now >= last.closes_at or last.size_bytes + len(payload) > JOINED_BYTES_MAX:
            last = Joined("text", b"", False, now + self._context.settings.join_ms / 1000)
            self._add(0, last)
        last.parts.append(payload)
        last.size_bytes += len(payload)
        self._tokens += 1
        last.tokens_so_far = self._tokens
        if token.rstrip(" ").endswith(SENTENCE_ENDS):
            last.closed = last.boundary = True
        self._changed.set()

    def item(self, kind: Kind, payload: bytes, boundary: bool, numbered: tuple[str, int]) -> None:
        """An item of its own; what was being joined before it is closed."""
        if self._items:
            self._items[-1][1].closed = True
        joined = Joined(kind, payload, boundary, closes_at=0)
        joined.tokens_so_far = self._tokens
        joined.numbered = numbered if numbered[1] else ("", 0)
        self._add(numbered[1], joined)
        self._changed.set()

    def close(self) -> None:
        """The socket is gone: what is being joined is lost with it, as its client can see from its replies."""
        if self._task is not None:
            self._task.cancel()

    def _add(self, n: int, joined: Joined) -> None:
        self._items.append((self._owe(n), joined))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_all())

    async def _store_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._items:
            entry, joined = self._items[0]
            if not joined.closed and (left_s := joined.closes_at - loop.time()) > 0:
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), left_s)
                except TimeoutError:
                    joined.closed = True
                continue
            joined.closed = True
            try:
                self._done(entry, joined, await self._store(joined))
            except DhschedError as error:
                self._done(entry, joined, error)
            self._items.popleft()

    async def _store(self, joined: Joined) -> o.AppendOutcome:
        item = unmarked(joined.kind, b"".join(joined.parts), joined.boundary)
        producer, n = joined.numbered
        if producer:
            return await self._context.append(Append(self._live, item, producer, n))
        return await self._context.append_to_its_end(Append(self._live, item, request=new_request()))
