"""From packets to a room: framing, bounds, keyframes, reconnecting, the end. The room is a real WebSocket server."""

from __future__ import annotations

import pytest

from tests.harness.avatar_extra import require_avatar, until

require_avatar()

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

from dhsched.avatar import publisher as publisher_module
from dhsched.avatar.publisher import QUEUE_BYTES_MAX, QUEUE_PACKETS_MAX, Publisher, Queue
from dhsched.room.packets import AUDIO, VIDEO, Packet, write_packet
from dhsched.worker import Publish
from tests.harness.room_server import Room, running


def video(n: int, *, keyframe: bool = False, size: int = 10) -> Packet:
    return Packet(VIDEO, keyframe, n, bytes(size))


def audio(n: int) -> Packet:
    return Packet(AUDIO, False, n, b"a")


# -- framing and the queue


def test_a_frame_is_kind_flags_time_and_payload() -> None:
    assert (
        write_packet(Packet(VIDEO, True, 0x0102030405, b"xyz"))
        == b"\x00\x01" + struct.pack(">Q", 0x0102030405) + b"xyz"
    )
    assert write_packet(Packet(AUDIO, False, 20_000, b"o")) == b"\x01\x00" + struct.pack(">Q", 20_000) + b"o"


def test_video_begins_with_a_keyframe_and_sound_does_not_wait_for_it() -> None:
    queue = Queue()
    for packet in (video(0), audio(1), video(2, keyframe=True), video(3)):
        queue.put(packet)
    assert [queue.pop() for _ in range(4)] == [audio(1), video(2, keyframe=True), video(3), None]
    assert queue.dropped == 1


@pytest.mark.parametrize(("size", "fits"), [(10, QUEUE_PACKETS_MAX), (QUEUE_BYTES_MAX // 8, 8)])
def test_when_full_all_of_it_is_old_and_video_waits_for_a_keyframe(size: int, fits: int) -> None:
    queue = Queue()
    for n in range(fits):
        queue.put(video(n, keyframe=n == 0, size=size))
    assert len(queue) == fits and not queue.needs_keyframe
    queue.put(video(fits, size=size))
    assert len(queue) == 0 and queue.needs_keyframe and queue.dropped == fits + 1
    queue.put(audio(1))
    queue.put(video(2, size=size))
    queue.put(video(3, keyframe=True, size=size))
    assert [queue.pop() for _ in range(3)] == [audio(1), video(3, keyframe=True, size=size), None]


# -- a room


@contextlib.asynccontextmanager
async def publishing(room: Room) -> AsyncIterator[tuple[Publisher, list[int]]]:
    """A publisher, and a list that grows whenever it needs a keyframe."""
    asked: list[int] = []
    publisher = Publisher(
        live="t/a", epoch=4, where=lambda: Publish(room.url, "secret"), on_keyframe=lambda: asked.append(1)
    )
    publisher.start()
    try:
        yield publisher, asked
    finally:
        await publisher.close()


async def test_packets_arrive_in_order_after_the_begin() -> None:
    async with running(Room()) as room, publishing(room) as (publisher, asked):
        await until(lambda: publisher.connected)
        assert asked, "a new connection needs a keyframe"
        publisher.put([audio(0), video(0, keyframe=True)])
        publisher.put([audio(20_000), video(66_000)])
        await until(lambda: len(room.frames) == 4)
    assert room.tokens == ["Bearer secret"]
    assert room.begins == [
        {
            "live": "t/a",
            "epoch": 4,
            "video": {"codec": "vp8", "clock": 90000},
            "audio": {"codec": "opus", "clock": 48000},
        }
    ]
    sent = [audio(0), video(0, keyframe=True), audio(20_000), video(66_000)]
    assert room.frames == [write_packet(packet) for packet in sent]


async def test_a_room_asks_for_a_keyframe() -> None:
    async with running(Room()) as room, publishing(room) as (publisher, asked):
        await until(lambda: publisher.connected and room.sockets)
        before = len(asked)
        await room.sockets[0].send_str('{"keyframe": true}')
        await until(lambda: len(asked) == before + 1)
        await room.sockets[0].send_str("what?")
        await room.sockets[0].send_str('{"keyframe": true, "later": 1}')
        await until(lambda: len(asked) == before + 2)


@pytest.mark.parametrize("said", ['{"stale": {"epoch": 5}}', '{"ended": true}'])
async def test_superseded_or_ended_stays_away(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "STALE_S", 60.0)
    async with running(Room()) as room, publishing(room) as (publisher, _):
        await until(lambda: publisher.connected and room.sockets)
        await room.sockets[0].send_str(said)
        await until(lambda: publisher.stale and not publisher.connected)
        publisher.put([video(0, keyframe=True)])
        await asyncio.sleep(0.3)
        assert len(room.tokens) == 1 and room.frames == []


@pytest.mark.parametrize("said", ['{"stale": {"epoch": 5}}', '{"ended": true}'])
async def test_superseded_or_ended_tries_again_as_long_as_its_runtime_goes_on(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store may have forgotten the generation that followed, or the end."""
    monkeypatch.setattr(publisher_module, "STALE_S", 0.01)
    async with running(Room()) as room, publishing(room) as (publisher, _):
        await until(lambda: publisher.connected and room.sockets)
        await room.sockets[0].send_str(said)
        await until(lambda: len(room.sockets) == 2 and publisher.connected)
        assert not publisher.stale
        publisher.put([video(0, keyframe=True)])
        await until(lambda: room.frames)


async def test_a_lost_connection_comes_back_and_goes_on_with_a_keyframe() -> None:
    async with running(Room()) as room, publishing(room) as (publisher, asked):
        await until(lambda: publisher.connected and room.sockets)
        publisher.put([video(0, keyframe=True)])
        await until(lambda: room.frames)
        before = len(asked)
        await room.sockets[0].close()
        await until(lambda: len(room.sockets) == 2 and publisher.connected)
        assert len(asked) > before
        publisher.put([video(1), video(2, keyframe=True)])
        await until(lambda: len(room.frames) == 2)
    assert room.frames[-1] == write_packet(video(2, keyframe=True))


async def test_a_room_that_is_not_there_or_refuses_blocks_nobody() -> None:
    async with running(Room(refuse=True)) as room, publishing(room) as (publisher, _):
        await until(lambda: len(room.tokens) >= 2)
        publisher.put([video(0, keyframe=True)])
        assert not publisher.connected
        room.refuse = False
        await until(lambda: publisher.connected)
    async with publishing(Room(url="http://127.0.0.1:9")) as (publisher, _):
        publisher.put([video(0, keyframe=True)] * 10_000)
        await asyncio.sleep(0.05)
        assert not publisher.connected


async def test_a_room_that_takes_nothing_costs_packets_and_nothing_else() -> None:
    """It never reads: buffers fill, then our queue, which is emptied again and again."""
    async with running(Room(), reads=False) as room, publishing(room) as (publisher, asked):
        await until(lambda: publisher.connected)
        for n in range(400):
            publisher.put([video(n, keyframe=True, size=100_000)])
            if n % 10 == 0:
                await asyncio.sleep(0)
        assert publisher.dropped > 100 and asked
