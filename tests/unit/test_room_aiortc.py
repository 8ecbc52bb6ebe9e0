"""What we take from aiortc that is not in its public face. If one fails after an update, read room/tracks.py."""

from __future__ import annotations

import asyncio

import aioice.ice
import aiortc
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpSender
from aiortc.rtp import RTCP_PSFB_PLI, RtcpPsfbPacket

from dhsched.room.packets import AUDIO, VIDEO
from dhsched.room.tracks import QUEUE_MAX, Forward, answer_keyframe_requests, encoded, use_addresses


async def test_a_picture_loss_report_reaches_us() -> None:
    asked: list[int] = []
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    sender = pc.addTransceiver("video", direction="sendonly").sender
    assert callable(RTCRtpSender._send_keyframe), f"aiortc {aiortc.__version__} has no _send_keyframe"
    answer_keyframe_requests(sender, lambda: asked.append(1))
    await sender._handle_rtcp_packet(RtcpPsfbPacket(fmt=RTCP_PSFB_PLI, ssrc=1, media_ssrc=sender._ssrc))
    await pc.close()
    assert asked == [1]


async def test_an_encoded_packet_is_packed_and_not_encoded() -> None:
    from aiortc.codecs import get_encoder
    from aiortc.rtcrtpparameters import RTCRtpCodecParameters

    encoder = get_encoder(RTCRtpCodecParameters("video/VP8", 90_000, payloadType=97))
    payloads, timestamp = encoder.pack(encoded(VIDEO, 2_000_000, b"v" * 3_000))
    assert timestamp == 180_000 and b"".join(payloads).count(b"v") == 3_000 and len(payloads) > 1
    encoder = get_encoder(RTCRtpCodecParameters("audio/opus", 48_000, channels=2, payloadType=96))
    assert encoder.pack(encoded(AUDIO, 20_000, b"a")) == ([b"a"], 960)


def test_host_candidates_are_those_that_we_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", aioice.ice.get_host_addresses)
    use_addresses(["127.0.0.1"])
    assert aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=True) == ["127.0.0.1"]


async def test_a_viewer_begins_with_a_keyframe_and_is_never_far_behind() -> None:
    asked: list[int] = []
    track = Forward(VIDEO, lambda: asked.append(1))
    frames = [encoded(VIDEO, n * 1_000, b"%d" % n) for n in range(1_000)]
    track.put(frames[0], keyframe=True)
    receiving = asyncio.ensure_future(track.recv())
    await asyncio.sleep(0)
    assert asked == [1], "the connection is up: now a keyframe is of use"
    track.put(frames[1], keyframe=False)
    await asyncio.sleep(0)
    assert not receiving.done()
    track.put(frames[2], keyframe=True)
    assert bytes(await receiving) == b"2"
    for n in range(3, 3 + QUEUE_MAX[VIDEO]):
        track.put(frames[n], keyframe=False)
    assert asked == [1] and track.overflows == 0
    track.put(frames[500], keyframe=False)
    assert asked == [1, 1] and track.overflows == 1
    track.put(frames[501], keyframe=False)
    track.put(frames[502], keyframe=True)
    assert bytes(await track.recv()) == b"502", "what was queued is gone, and so is what cannot be decoded"
    receiving = asyncio.ensure_future(track.recv())
    await asyncio.sleep(0)
    track.stop()
    with pytest.raises(aiortc.mediastreams.MediaStreamError):
        await receiving
