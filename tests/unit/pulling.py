"""A store that the test answers, connections and pulls, for unit tests of an Infer-Controller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from dhsched.infer.granted_pull import GrantedPull
from dhsched.infer.pulls import ServedPull
from dhsched.links.outbox import Outbox
from dhsched.ownership.items import UNMARKED
from dhsched.store.steps.redis import Ack, Append, RedisStore, Release

LIVE = "t/a"


class SlowStore(RedisStore):
    """Every call is a future that the test answers, with the outcomes of its rows."""

    def __init__(self) -> None:
        self.appends: list[tuple[Sequence[Append], str, asyncio.Future[Any]]] = []
        self.releases: list[tuple[Sequence[Release], asyncio.Future[Any]]] = []
        self.order: list[str] = []

    def append_soon(
        self, rows: Sequence[Append], controller: str, credit: int = 0, pending_max: int | None = None
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


class Peer:
    """A Worker's connection that takes everything."""

    def __init__(self) -> None:
        self.waiting: set[ServedPull] = set()
        self.takes_traces = True
        self.outbox = Outbox(self.send)

    def emit_answered(self) -> None:
        raise AssertionError("no message was sent")

    async def send(self, frame: bytes) -> None:
        raise AssertionError(f"nothing was to be sent: {frame!r}")


def pull_of(peer: Peer, live: str = LIVE, **given: Any) -> ServedPull:
    return GrantedPull(peer, live, "A#1", **{"epoch": 1, "pull_no": 1, "after": 0, "mark": UNMARKED, **given})


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
