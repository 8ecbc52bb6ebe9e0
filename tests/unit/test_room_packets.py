"""What a publisher sends, read and refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aiortc.codecs.h264 import H264Encoder
from hypothesis import given
from hypothesis import strategies as st

from dhsched.errors import BadValue
from dhsched.room.packets import (
    AUDIO,
    H264_UNITS_MAX,
    HEADER,
    PTS_MAX_US,
    VIDEO,
    Packet,
    is_h264_keyframe,
    read_begin,
    read_packet,
    write_packet,
)

KEY = b"\x10\x02\x00\x9d\x01\x2a" + b"k" * 20
INTER = b"\x11\x02\x00" + b"i" * 20
BEGIN: dict[str, Any] = {
    "live": "default/L",
    "epoch": 3,
    "video": {"codec": "vp8", "clock": 90000},
    "audio": {"codec": "opus", "clock": 48000},
}


@pytest.mark.parametrize(
    "packet",
    [Packet(VIDEO, True, 0, KEY), Packet(VIDEO, False, 66_666, INTER), Packet(AUDIO, False, PTS_MAX_US, b"\xf8")],
)
def test_a_packet_is_read_as_it_was_written(packet: Packet) -> None:
    assert read_packet(write_packet(packet)) == packet


@pytest.mark.parametrize(
    "frame, why",
    [
        (b"", "has 0 bytes"),
        (HEADER.pack(AUDIO, 0, 0), "has 10 bytes"),
        (HEADER.pack(3, 0, 0) + b"x", "kind 3"),
        (HEADER.pack(AUDIO, 2, 0) + b"x", "flags 2"),
        (HEADER.pack(AUDIO, 0, PTS_MAX_US + 1) + b"x", "pts"),
        (HEADER.pack(VIDEO, 1, 0) + INTER, "says keyframe True"),
        (HEADER.pack(VIDEO, 0, 0) + KEY, "says keyframe False"),
        (HEADER.pack(VIDEO, 1, 0) + b"\x00", "says keyframe True"),
    ],
)
def test_a_malformed_packet_is_refused_with_a_reason(frame: bytes, why: str) -> None:
    with pytest.raises(BadValue, match=re.escape(why)):
        read_packet(frame)


UNIT = b"\0\0\0\1"
IDR = UNIT + b"\x67sps" + UNIT + b"\x68pps" + b"\0\0\1\x65picture"


@pytest.mark.parametrize(
    "keyframe, payload, why",
    [
        (True, IDR, ""),
        (False, UNIT + b"\x41picture", ""),
        (False, b"\0\0\1\x41picture", ""),
        (True, UNIT + b"\x41picture", "says keyframe True"),
        (False, IDR, "says keyframe False"),
        (True, UNIT + b"\x65picture", "says keyframe True"),  # Nobody could begin with it: its parameters are missing.
        (False, b"\x41picture", "no H.264"),
        (False, b"x" + UNIT + b"\x41picture", "no H.264"),
        (False, UNIT + UNIT + b"\x41picture", "no H.264"),
        (False, UNIT, "no H.264"),
        (False, UNIT + b"\0", "no H.264"),
        (False, (UNIT + b"\x41") * (H264_UNITS_MAX + 1), "NAL units"),
    ],
)
def test_a_frame_of_h264_is_read_or_refused_with_a_reason(keyframe: bool, payload: bytes, why: str) -> None:
    packet = Packet(VIDEO, keyframe, 1, payload)
    if not why:
        assert read_packet(write_packet(packet), "h264") == packet
        return
    with pytest.raises(BadValue, match=re.escape(why)):
        read_packet(write_packet(packet), "h264")


@given(st.lists(st.sampled_from([UNIT, b"\0\0\1", b"\0", b"\1", b"\x65", b"\x41" * 2_000]), min_size=1, max_size=8))
def test_what_is_read_of_h264_can_be_packed_for_viewers(parts: list[bytes]) -> None:
    payload = b"".join(parts)
    try:
        is_h264_keyframe(payload)
    except BadValue:
        return
    assert H264Encoder._packetize(H264Encoder._split_bitstream(payload))


@pytest.mark.parametrize("video", ["vp8", "h264"])
@given(st.binary(max_size=64))
def test_any_bytes_are_a_packet_or_refused(video: str, frame: bytes) -> None:
    try:
        packet = read_packet(frame, video)
    except BadValue:
        return
    assert write_packet(packet)[HEADER.size :] == packet.payload


@pytest.mark.parametrize(
    "change, why",
    [
        ({"epoch": 4}, "about default/L@4"),
        ({"live": "default/M"}, "about default/M@3"),
        ({"video": {"codec": "h264", "clock": 90000}}, "h264"),
        ({"audio": {"codec": "opus", "clock": 8000}}, "8000"),
        ({"video": None}, "video"),
    ],
)
def test_the_first_message_must_fit_the_token_and_the_codecs(change: dict[str, Any], why: str) -> None:
    assert read_begin(json.dumps(BEGIN), live="default/L", epoch=3).epoch == 3
    with pytest.raises(BadValue, match=re.escape(why)):
        read_begin(json.dumps({**BEGIN, **change}), live="default/L", epoch=3)
    with pytest.raises(BadValue):
        read_begin(b"\xff{", live="default/L", epoch=3)
    with pytest.raises(BadValue, match="announces vp8, and this room forwards h264"):
        read_begin(json.dumps(BEGIN), live="default/L", epoch=3, video="h264")
