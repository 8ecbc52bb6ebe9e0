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

VIDEO, AUDIO, CAPTION = 0, 1, 2
HEADER = struct.Struct(">BBQ")
KEYFRAME = 1
PTS_MAX_US = 2**53
VP8_START_CODE = b"\x9d\x01\x2a"
H264_START_CODE = b"\x00\x00\x01"
H264_IDR, H264_SPS, H264_PPS = 5, 7, 8
H264_UNITS_MAX = 256  # A frame with more NAL units ends its publisher's connection; encoders make a handful.
CAPTION_BYTES_MAX = 8_192  # A longer caption ends its publisher's connection.


class Video(msgspec.Struct, frozen=True):
    codec: Literal["vp8", "h264"]
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


class Caption(msgspec.Struct, frozen=True):
    """The payload of a caption: the words of a sentence of item `seq` that were heard. `cut`: an interrupt ended it."""

    seq: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
    text: Annotated[str, msgspec.Meta(max_length=1_000)]
    cut: bool = False


class Packet(NamedTuple):
    """One encoded frame of video or audio, or a caption. `pts_us` counts from the beginning of its generation."""

    kind: int
    keyframe: bool
    pts_us: int
    payload: bytes


_captions = msgspec.json.Decoder(Caption)


def read_begin(text: str | bytes, *, live: str, epoch: int, video: str = "vp8") -> Begin:
    """Return the first message. Raise BadValue if it does not fit the token, or the room's codec for `video`."""
    try:
        begin = msgspec.json.decode(text, type=Begin)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"the first message does not fit: {error}") from None
    if (begin.live, begin.epoch) != (live, epoch):
        raise BadValue(f"the first message is about {begin.live}@{begin.epoch}, the token about {live}@{epoch}")
    if begin.video.codec != video:
        raise BadValue(f"the first message announces {begin.video.codec}, and this room forwards {video} (its `video`)")
    return begin


def read_packet(frame: bytes, video: str = "vp8") -> Packet:
    """Return a packet of a publisher whose codec is `video`. Raise BadValue if anything in it does not fit."""
    if len(frame) <= HEADER.size:
        raise BadValue(f"a packet has {len(frame)} bytes, at least {HEADER.size + 1} are needed")
    kind, flags, pts_us = HEADER.unpack_from(frame)
    if kind not in (VIDEO, AUDIO, CAPTION):
        raise BadValue(f"a packet is of kind {kind}; 0 is video, 1 is audio, 2 is a caption")
    if flags & ~KEYFRAME:
        raise BadValue(f"a packet has flags {flags}; only bit 0, keyframe, has a meaning")
    if pts_us > PTS_MAX_US:
        raise BadValue(f"a packet has pts {pts_us} us, at most {PTS_MAX_US} are allowed")
    payload, keyframe = frame[HEADER.size :], bool(flags)
    if kind == VIDEO and keyframe != (is_vp8_keyframe(payload) if video == "vp8" else is_h264_keyframe(payload)):
        raise BadValue(f"a video packet says keyframe {keyframe}, and its frame is the opposite")
    return Packet(kind, kind == VIDEO and keyframe, pts_us, payload)


def read_caption(payload: bytes) -> Caption:
    """Return the caption of a packet's payload. Raise BadValue if it is too long or does not fit."""
    if len(payload) > CAPTION_BYTES_MAX:
        raise BadValue(f"a caption has {len(payload)} bytes, at most {CAPTION_BYTES_MAX} are allowed")
    try:
        return _captions.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"a caption does not fit: {error}") from None


def write_packet(packet: Packet) -> bytes:
    """Encode a packet as a publisher does."""
    return HEADER.pack(packet.kind, KEYFRAME if packet.keyframe else 0, packet.pts_us) + packet.payload


def is_vp8_keyframe(frame: bytes) -> bool:
    """Return whether a VP8 frame is a keyframe: bit 0 of its tag is clear, and a start code follows."""
    return not frame[0] & 1 and frame[3:6] == VP8_START_CODE


def is_h264_keyframe(frame: bytes) -> bool:
    """Return whether an H.264 frame (Annex B) is a keyframe that can be decoded by itself: an IDR picture with its
    parameter sets. Raise BadValue if the frame cannot be cut into NAL units, which a viewer's connection does later."""
    units = frame.split(H264_START_CODE, H264_UNITS_MAX + 1)
    if len(units) > H264_UNITS_MAX + 1:
        raise BadValue(f"a frame has more than {H264_UNITS_MAX} NAL units")
    if len(units) < 2 or units[0].strip(b"\0") or not all(unit.rstrip(b"\0") for unit in units[1:]):
        raise BadValue("a frame is no H.264 in Annex B: it must begin with a start code, and have no empty NAL unit")
    return {H264_IDR, H264_SPS, H264_PPS} <= {unit[0] & 0x1F for unit in units[1:]}
