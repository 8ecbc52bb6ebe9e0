"""A store that answers when the test says so, and timers that fire when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from dhsched.infer.gather import RETRY_S
from dhsched.store.steps.redis import Ack, Append, RedisStore, Release


class SlowStore(RedisStore):
    """Every call is a future that the test answers, with the outcomes of its rows."""

    def __init__(self) -> None:
        self.appends: list[tuple[Sequence[Append], str, asyncio.Future[Any]]] = []
        self.releases: list[tuple[Sequence[Release], asyncio.Future[Any]]] = []
        self.order: list[str] = []

    def append_soon(
        self, rows: Sequence[Append], controller: str, pending_max: int | None = None
    ) -> asyncio.Future[Any]:
        self.order.append("append")
        self.appends.append((rows, controller, asyncio.get_running_loop().create_future()))
        return self.appends[-1][2]

    def release_soon(self, rows: Sequence[Release], credit: int) -> asyncio.Future[Any]:
        self.order.append("release")
        self.releases.append((rows, asyncio.get_running_loop().create_future()))
        return self.releases[-1][1]

    def ack_soon(self, rows: Sequence[Ack]) -> asyncio.Future[Any]:
        raise AssertionError(f"nothing was consumed: {rows}")


class AckingStore(SlowStore):
    """Takes acks as well."""

    def __init__(self) -> None:
        super().__init__()
        self.acks: list[tuple[Sequence[Ack], asyncio.Future[Any]]] = []

    def ack_soon(self, rows: Sequence[Ack]) -> asyncio.Future[Any]:
        self.order.append("ack")
        self.acks.append((rows, asyncio.get_running_loop().create_future()))
        return self.acks[-1][1]


class Retries:
    """The timers that this loop is asked for. They fire when the test says so, not when time has passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._due: list[Callable[[], None]] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self._call_later)

    def _call_later(self, delay_s: float, retry: Callable[..., None], *args: Any) -> None:
        assert delay_s == RETRY_S
        self._due.append(partial(retry, *args))

    async def fire(self) -> None:
        """Let the one timer that waits fire, and everything happen that follows."""
        (retry,) = self._due
        self._due.clear()
        retry()
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
