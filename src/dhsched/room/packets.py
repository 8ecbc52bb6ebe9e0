"""A publisher's messages, decoded and checked. Pure; docs/guides/room.md has the format.

Every field is checked: a packet that does not fit ends its publisher's connection with a reason, because later packets
cannot be trusted either. The keyframe flag is compared with the frame itself: a take-over depends on the flag.
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal, NamedTuple

import msgspec

from dhsched.errors import BadValue
from dhsched.types import NUMBER_MAX

VIDEO, AUDIO = 0, 1
HEADER = struct.Struct(">BBQ")
KEYFRAME = 1
PTS_MAX_US = 2**53
VP8_START_CODE = b"\x9d\x01\x2a"


class Video(msgspec.Struct, frozen=True):
    codec: Literal["vp8"]
    clock: Literal[90000]


class Audio(msgspec.Struct, frozen=True):
    codec: Literal["opus"]
    clock: Literal[48000]


class Begin(msgspec.Struct, frozen=True):
    """The first message. Its live and epoch must be those of the token, so that a mix-up of two is noticed."""

    live: Annotated[str, msgspec.Meta(max_length=129)]
    epoch: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]
    video: Video
    audio: Audio


class Packet(NamedTuple):
    """One encoded frame of video or audio. `pts_us` counts from the beginning of its generation."""

    kind: int
    keyframe: bool
    pts_us: int
    payload: bytes


def read_begin(text: str | bytes, *, live: str, epoch: int) -> Begin:
    try:
        begin = msgspec.json.decode(text, type=Begin)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"the first message does not fit: {error}") from None
    if (begin.live, begin.epoch) != (live, epoch):
        raise BadValue(f"the first message is about {begin.live}@{begin.epoch}, the token about {live}@{epoch}")
    return begin


def read_packet(frame: bytes) -> Packet:
    if len(frame) <= HEADER.size:
        raise BadValue(f"a packet has {len(frame)} bytes, at least {HEADER.size + 1} are needed")
    kind, flags, pts_us = HEADER.unpack_from(frame)
    if kind not in (VIDEO, AUDIO):
        raise BadValue(f"a packet is of kind {kind}; 0 is video, 1 is audio")
    if flags & ~KEYFRAME:
        raise BadValue(f"a packet has flags {flags}; only bit 0, keyframe, has a meaning")
    if pts_us > PTS_MAX_US:
        raise BadValue(f"a packet has pts {pts_us} us, at most {PTS_MAX_US} are allowed")
    payload, keyframe = frame[HEADER.size :], bool(flags)
    if kind == VIDEO and keyframe != is_vp8_keyframe(payload):
        raise BadValue(f"a video packet says keyframe {keyframe}, and its frame is the opposite")
    return Packet(kind, kind == VIDEO and keyframe, pts_us, payload)


def write_packet(packet: Packet) -> bytes:
    """Encode a packet as a publisher does."""
    return HEADER.pack(packet.kind, KEYFRAME if packet.keyframe else 0, packet.pts_us) + packet.payload


def is_vp8_keyframe(frame: bytes) -> bool:
    """Return whether a VP8 frame is a keyframe: bit 0 of its tag is clear, and a start code follows."""
    return not frame[0] & 1 and frame[3:6] == VP8_START_CODE
