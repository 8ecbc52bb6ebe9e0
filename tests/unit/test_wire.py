"""Frames: what is said is what is heard, and what does not fit is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from aiohttp import WSMessage, WSMsgType

from dhsched.client.stream import frames_of
from dhsched.errors import BadValue
from dhsched.infer.pull import PullPeer
from dhsched.infer.stream import read_pushes
from dhsched.links import messages
from dhsched.links import outbox as outbox_module
from dhsched.links.outbox import Outbox
from dhsched.types import BUSY_MAX
from dhsched.worker.agent import part_of

FROM_INFER = [
    messages.Welcome("c1"),
    messages.Opened("t/a", 1, "d", "r", b"m", b"c", b"s"),
    messages.Pulling("t/a", 1, 2, 3, b"c", b"s"),
    messages.Items("t/a", 1, 2, 4, [b"tone", b"Ttwo"]),
    messages.Stale("t/a", 1),
    messages.Ended("t/a", 1),
    messages.Goodbye(),
    messages.Problem("AHEAD", "pull again", "t/a", 1),
]
FROM_WORKER = [
    messages.Register("w", "b", "p", 4, "x=1", "w#1"),
    messages.Resume("token"),
    messages.Report(1, 2, ["t/a@1"]),
    messages.Depart("t/a", 1),
    messages.Drain(),
    messages.Exit(),
]


def test_every_message_survives_the_wire() -> None:
    assert messages.read_infer_says(messages.encode(FROM_INFER)) == FROM_INFER
    assert messages.read_from_worker(messages.encode(FROM_WORKER)) == FROM_WORKER


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        messages.encode([messages.Goodbye()]),  # Not a Worker's to say.
        msgspec.msgpack.encode([["report", -1, 0]]),
        msgspec.msgpack.encode([["report", 2**50 + 1, 0]]),
        msgspec.msgpack.encode([["depart", "x" * 130, 1]]),
        msgspec.msgpack.encode([["register", "w", "b", "p"]]),
        msgspec.msgpack.encode([["resume", "x" * 3000]]),
        msgspec.msgpack.encode([["nonsense"]]),
        msgspec.msgpack.encode({"report": 1}),
        b"\x91" * 100_000,
    ],
)
def test_what_does_not_fit_is_refused(frame: bytes) -> None:
    with pytest.raises(BadValue):
        messages.read_from_worker(frame)


def test_a_frame_has_a_limit() -> None:
    with pytest.raises(BadValue, match="at most"):
        messages.read_from_worker(b"x" * (messages.FRAME_BYTES_MAX + 1))


async def test_one_tick_is_one_frame_and_big_ones_are_split() -> None:
    frames: list[list[Any]] = []

    async def send(frame: bytes) -> None:
        frames.append(msgspec.msgpack.decode(frame))

    outbox = Outbox(send)
    running = asyncio.create_task(outbox.run())
    for n in range(100):
        outbox.put(messages.Stale("t/a", n))
    await asyncio.sleep(0.01)
    assert [len(frame) for frame in frames] == [100]
    for _ in range(4):
        outbox.put(messages.Items("t/a", 1, 1, 1, [b"x"]), messages.FRAME_BYTES_FULL // 2)
    outbox.finish()
    await running
    assert [len(frame) for frame in frames[1:]] == [2, 2] and outbox.waiting_bytes == 0


async def test_a_slow_peer_fills_only_its_own_outbox() -> None:
    gate = asyncio.Event()

    async def send(frame: bytes) -> None:
        await gate.wait()

    drained: list[bool] = []
    outbox = Outbox(send, lambda: drained.append(outbox.full))
    running = asyncio.create_task(outbox.run())
    for _ in range(3):
        outbox.put(messages.Items("t/a", 1, 1, 1, [b"x"]), 500_000)
        await asyncio.sleep(0)
    assert outbox.full and not drained
    gate.set()
    outbox.finish()
    await running
    assert drained[-1] is False


async def test_a_peer_that_takes_nothing_is_given_up_after_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames before the one that nobody takes do not shorten its time, although they share a timer with it."""
    monkeypatch.setattr(outbox_module, "SEND_MAX_S", 0.3)
    loop = asyncio.get_running_loop()
    stuck_at = 0.0

    async def send(frame: bytes) -> None:
        nonlocal stuck_at
        if loop.time() - began > 0.5:
            stuck_at = loop.time()
            await asyncio.Event().wait()

    began = loop.time()
    outbox = Outbox(send)
    running = asyncio.create_task(outbox.run())
    while not stuck_at:
        outbox.put(messages.Goodbye())
        await asyncio.sleep(0.02)
    with pytest.raises(TimeoutError, match="took nothing"):
        await running
    assert loop.time() - stuck_at >= 0.29


async def test_a_cancelled_outbox_is_cancelled_and_not_late() -> None:
    outbox = Outbox(lambda _frame: asyncio.Event().wait())  # type: ignore[arg-type, return-value]
    running = asyncio.create_task(outbox.run())
    outbox.put(messages.Goodbye())
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_a_report_names_so_many_slots_and_the_others_next_time() -> None:
    tags = [f"t/l{n}@1" for n in range(2 * BUSY_MAX + 10)]
    named = [part_of(tags, report) for report in range(3)]
    assert {len(part) for part in named} == {BUSY_MAX} and set().union(*named) == set(tags)
    assert part_of(tags[:BUSY_MAX], 7) == tags[:BUSY_MAX]
    with pytest.raises(BadValue):
        messages.read_from_worker(messages.encode([messages.Report(1, 1, tags)]))


class OneFrame:
    """A WebSocket on which one frame comes."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame

    async def __aiter__(self) -> AsyncIterator[WSMessage]:
        yield WSMessage(WSMsgType.BINARY, self._frame, None)

    async def send_bytes(self, frame: bytes) -> None:
        raise AssertionError(f"nobody asked for {frame!r}")


def leave_often(count: int) -> bytes:
    return messages.encode([messages.Leave("t/a", n) for n in range(count)])


async def test_a_long_frame_gives_everybody_else_a_turn() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    taken: list[int] = []
    pulls = SimpleNamespace(find=lambda _peer, _live, epoch: taken.append(epoch))
    peer = PullPeer(cast(Any, SimpleNamespace(pulls=pulls)), cast(Any, OneFrame(leave_often(messages.MESSAGES_MAX))))
    peer.worker = "w#1"
    running = asyncio.create_task(others())
    await peer.listen()
    running.cancel()
    assert taken == [*range(messages.MESSAGES_MAX)] and turns >= messages.MESSAGES_MAX // messages.TURN_MESSAGES - 1


def test_what_a_stream_sends_again_is_split_into_frames_that_are_taken() -> None:
    small = [msgspec.json.encode({"n": n, "kind": "config", "config": {"a": [{}, {}]}}) for n in range(1, 3_001)]
    large = [msgspec.json.encode({"n": n, "text": "x" * 60_000}) for n in range(1, 41)]
    for items in (small, large, []):
        frames = [*frames_of(items)]
        assert [each["n"] for frame in frames for each in msgspec.json.decode(frame)] == [*range(1, len(items) + 1)]
        assert all(len(frame) <= messages.PUSH_FRAME_BYTES_MAX for frame in frames)
        assert [len(read_pushes(frame)) for frame in frames] == [len(msgspec.json.decode(frame)) for frame in frames]
