"""One connection of a push stream: when it is read no further, and when others are served in between."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from dhsched.access.callers import OPEN
from dhsched.infer import stream
from dhsched.infer.context import Inputs
from dhsched.infer.settings import InferSettings
from dhsched.links.messages import PUSHES_MAX
from dhsched.links.outbox import OUTBOX_BYTES_FULL, Outbox
from dhsched.ownership import outcomes as o


class Rig:
    """A connection without a socket. Items are stored when the test says so."""

    def __init__(self, **settings: Any) -> None:
        self.slow_s = 0.0
        self.slowed: list[int] = []
        self.appends: list[Any] = []
        self.counted: list[Any] = []
        self.sent: list[bytes] = []
        self.readable = asyncio.Event()
        self.readable.set()
        self.over_pending: set[str] = set()
        inputs = SimpleNamespace(
            settings=InferSettings(**settings),
            append_soon=lambda row, done: self.appends.append((row, done)),
            pushed=lambda *given: self.counted.append(given),
            memory_share=0.0,
            service=SimpleNamespace(slow=self.slow, load=SimpleNamespace(turn=self.turn), quotas=self),
        )
        self.connection = stream.StreamPeer(cast(Inputs, inputs), OPEN, "a", "p")
        self.connection._outbox = Outbox(self.send, self.connection._drained, msgspec.json.encode)
        self.connection._sending = asyncio.ensure_future(self.connection._outbox.run())

    def slow(self, caller: Any, items: int) -> float:
        self.slowed.append(items)
        return self.slow_s

    async def turn(self, tenant: str) -> None: ...

    async def send(self, frame: bytes) -> None:
        await self.readable.wait()
        self.sent.append(frame)

    def hear(self, *numbers: int) -> asyncio.Future[None]:
        frame = json.dumps([{"n": n, "text": f"item {n}"} for n in numbers])
        return asyncio.ensure_future(self.connection._hear(frame))

    def store(self, count: int) -> None:
        """Answer so many items as stored, the earliest first; each answer may send the next item."""
        for seq in range(count):
            _row, done = self.appends.pop(0)
            done(o.Appended(seq + 1))

    async def end(self) -> None:
        self.connection._sending.cancel()
        await asyncio.gather(self.connection._sending, return_exceptions=True)


async def ticks(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def rig() -> Any:
    made = Rig(stream_in_flight_max=100)
    yield made
    await made.end()


async def test_who_is_over_its_rate_is_read_more_slowly_and_loses_nothing(rig: Rig) -> None:
    rig.slow_s = 60.0
    hearing = rig.hear(1, 2)
    await ticks()
    assert rig.slowed == [2] and rig.appends and not hearing.done()
    hearing.cancel()
    rig.slow_s = 0.0
    hearing = rig.hear(3)
    await asyncio.wait_for(hearing, 60)


async def test_an_item_is_answered_when_it_is_stored(rig: Rig) -> None:
    await asyncio.wait_for(rig.hear(1), 60)
    assert rig.sent == [] and not rig.connection._waits
    rig.store(1)
    await ticks()
    assert len(rig.sent) == 1 and b"seq" in rig.sent[0] and len(rig.counted) == 1


async def test_a_frame_that_cannot_be_read_counts_against_the_rate(rig: Rig) -> None:
    await asyncio.wait_for(rig.connection._hear("nonsense"), 60)
    assert rig.slowed == [1] and rig.appends == []


async def test_others_are_served_after_so_many_pushes_in_whatever_frames(rig: Rig) -> None:
    served: list[int] = []

    async def other() -> None:
        while True:
            served.append(rig.connection._since_others)
            await asyncio.sleep(0)

    serving = asyncio.ensure_future(other())
    await asyncio.sleep(0)
    served.clear()
    half = PUSHES_MAX // 2
    await rig.connection._hear(json.dumps([{"n": n, "text": "x"} for n in range(1, half + 1)]))
    assert served == [], "a short frame is handled at once"
    await rig.connection._hear(json.dumps([{"n": n, "text": "x"} for n in range(half + 1, 2 * half + 1)]))
    assert served == [0], "then others have their turn, and the count begins anew"
    serving.cancel()


async def test_a_connection_with_too_much_in_flight_is_read_when_something_is_stored() -> None:
    rig = Rig(stream_in_flight_max=2)
    hearing = rig.hear(1, 2)
    await ticks()
    assert not hearing.done() and len(rig.appends) == 2
    rig.store(1)
    await asyncio.wait_for(hearing, 60)
    assert not rig.connection._waits and len(rig.counted) == 1
    await rig.end()


async def test_a_client_that_does_not_read_its_answers_is_not_read_until_it_does(rig: Rig) -> None:
    rig.readable.clear()
    rig.connection._outbox.put({"filler": 1}, OUTBOX_BYTES_FULL + 1)
    await ticks()
    hearing = rig.hear(1)
    await ticks()
    rig.store(1)
    await ticks()
    assert not hearing.done()
    rig.connection._drained()
    await ticks()
    assert not hearing.done(), "it is full still"
    rig.readable.set()
    await asyncio.wait_for(hearing, 60)


async def test_a_client_that_is_gone_is_not_waited_for(rig: Rig) -> None:
    rig.readable.clear()
    rig.connection._outbox.put({"filler": 1}, OUTBOX_BYTES_FULL + 1)
    await ticks()
    rig.connection._sending.cancel()
    await asyncio.gather(rig.connection._sending, return_exceptions=True)
    rig.connection._stream.full()
    rig.connection._drained()
    await asyncio.wait_for(rig.hear(1), 60)
