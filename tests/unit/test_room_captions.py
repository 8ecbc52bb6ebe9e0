"""Captions in a room: which generation's are shown, and what a viewer's stream sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from dhsched.errors import BadValue
from dhsched.room import captions as captions_module
from dhsched.room.captions import CaptionOut, Captions
from dhsched.room.live_room import Counts, LiveRoom
from dhsched.room.packets import CAPTION, CAPTION_BYTES_MAX, Caption, Packet, read_caption
from tests.harness.publishers import KEYFRAME, Hand, on_air, said


def spoken(text: str, seq: int = 1, *, cut: bool = False) -> bytes:
    return msgspec.json.encode(Caption(seq, text, cut))


def packet(text: str, seq: int = 1) -> Packet:
    return Packet(CAPTION, False, 0, spoken(text, seq))


async def following(captions: Captions, *, rounds: int = 100) -> AsyncIterator[dict[str, Any]]:
    """The captions that a viewer's stream sends, in at most so many rounds."""
    left = rounds

    def is_open() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    async for events in captions.follow(is_open):
        for event in events:
            name, data = event.decode().splitlines()[:2]
            assert name == "event: caption"
            yield json.loads(data.removeprefix("data: "))


async def test_only_the_generation_on_air_has_a_caption() -> None:
    room = LiveRoom("default/L", Counts())
    first = on_air(room, 1, "h")
    assert room.hear(first, packet("Hello"))
    assert room.captions.fresh == CaptionOut(1, 1, "Hello", cut=False)
    second = Hand(2)
    room.admit(said(2, 2, "h"))
    room.join(second)
    assert room.hear(second, packet("Hello world"))
    assert room.captions.fresh == CaptionOut(1, 1, "Hello", cut=False), "it has no picture yet"
    assert not room.hear(first, packet("Hello again")), "a higher generation has published"
    assert room.hear(second, KEYFRAME) and room.on_air == 2
    assert room.captions.fresh == CaptionOut(1, 1, "Hello", cut=False), "a take-over takes nothing away"
    assert room.hear(second, packet("Hello world"))
    assert room.captions.fresh == CaptionOut(2, 1, "Hello world", cut=False)
    room.admit(said(1, 2, "h"))
    late = Hand(1)
    room.join(late)
    assert not room.hear(first, packet("Hello from before"))
    assert room.captions.fresh == CaptionOut(2, 1, "Hello world", cut=False)


async def test_a_caption_that_cannot_be_read_is_refused() -> None:
    room = LiveRoom("default/L", Counts())
    hand = on_air(room, 1, "h")
    for payload in (b"x", b"{}", b'{"seq": -1, "text": ""}', spoken("x" * 1_001), b'{"seq": 1, "text": "\xff"}'):
        with pytest.raises(BadValue, match="a caption does not fit"):
            room.hear(hand, Packet(CAPTION, False, 0, payload))
    with pytest.raises(BadValue, match=f"at most {CAPTION_BYTES_MAX}"):
        read_caption(b" " * (CAPTION_BYTES_MAX + 1))
    assert room.captions.fresh is None
    longest = "\N{GRINNING FACE}" * 1_000
    assert read_caption(spoken(longest)).text == longest, "the longest text fits into the bytes"


async def test_a_stream_sends_each_caption_once_and_leaves_out_what_came_too_fast() -> None:
    captions = Captions()
    captions.show(1, spoken("One"))
    stream = following(captions)
    assert (await anext(stream))["text"] == "One"
    for text in ("One two", "One two three"):
        captions.show(1, spoken(text))
    assert (await anext(stream))["text"] == "One two three"
    captions.show(1, spoken("One two three", cut=True))
    assert await anext(stream) == {"epoch": 1, "seq": 1, "text": "One two three", "cut": True}


async def test_who_comes_late_is_sent_no_old_caption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captions_module, "FRESH_S", 0.0)
    monkeypatch.setattr(captions_module, "ROUND_S", 0.01)
    captions = Captions()
    captions.show(1, spoken("One"))
    await asyncio.sleep(0.01)
    assert [each async for each in following(captions, rounds=3)] == []


async def test_a_stream_ends_when_its_viewer_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captions_module, "ROUND_S", 0.01)
    captions = Captions()
    captions.show(1, spoken("One"))
    assert [each["text"] async for each in following(captions, rounds=3)] == ["One"]
