"""Encodes pictures to VP8 or H.264 and sound to Opus, each in a context with one thread: lives run in parallel instead.

Settings are for real time: no look-ahead, the fastest mode, a keyframe on request and, rarely, by itself.
"""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType

from dhsched.avatar.canvas import Pixels
from dhsched.avatar.clock import SAMPLES_PER_SLOT, SLOT_US
from dhsched.avatar.speech import RATE, Samples
from dhsched.room.packets import AUDIO, VIDEO, Packet

VIDEO_CLOCK = 90_000
KEYFRAME_EVERY = 300  # After this many frames a keyframe comes unasked, for a viewer whose request was lost.
BITS_PER_PIXEL = 0.16  # At 320x320 and 15 frames a second, 250 kbit/s.
AUDIO_BITS = 32_000


VP8 = {
    "deadline": "realtime",
    "cpu-used": "-12",
    "lag-in-frames": "0",
    "error-resilient": "1",
    "static-thresh": "200",
    "qmin": "4",
    "qmax": "48",
}
# What every browser decodes. A keyframe on request must be one (IDR), and have its parameter sets with it.
H264 = {"preset": "ultrafast", "tune": "zerolatency", "profile": "baseline", "level": "3.1", "forced-idr": "1"}
OPTIONS = {"vp8": VP8, "h264": H264}


class VideoEncoder:
    def __init__(self, size: int, fps: int, codec: str = "vp8") -> None:
        bits = round(size * size * fps * BITS_PER_PIXEL)
        context = av.CodecContext.create({"vp8": "libvpx", "h264": "libx264"}[codec], "w")
        assert isinstance(context, VideoCodecContext)
        context.width = context.height = size
        context.pix_fmt = "yuv420p"
        context.time_base = Fraction(1, VIDEO_CLOCK)
        context.framerate = Fraction(fps, 1)
        context.bit_rate = bits
        context.gop_size = KEYFRAME_EVERY
        context.thread_count = 1
        context.options = OPTIONS[codec] | {"maxrate": str(bits * 2), "bufsize": str(bits * 2)}
        self._context = context

    def encode(self, i420: Pixels, pts_us: int, *, keyframe: bool) -> Packet | None:
        """Return the encoded frame; None if the encoder left the frame out."""
        frame = av.VideoFrame.from_ndarray(i420, format="yuv420p")
        frame.pts = pts_us * (VIDEO_CLOCK // 1000) // 1000
        frame.time_base = Fraction(1, VIDEO_CLOCK)
        frame.pict_type = PictureType.I if keyframe else PictureType.NONE
        if not (packets := self._context.encode(frame)):
            return None
        return Packet(VIDEO, any(p.is_keyframe for p in packets), pts_us, b"".join(bytes(p) for p in packets))


class AudioEncoder:
    """Opus, 20 ms a packet."""

    def __init__(self) -> None:
        context = av.CodecContext.create("libopus", "w")
        assert isinstance(context, AudioCodecContext)
        context.sample_rate = RATE
        context.layout = "mono"
        context.format = "s16"
        context.bit_rate = AUDIO_BITS
        # Music mode at low complexity: a quarter of the time of the mode for speech, at a rate where both sound alike.
        context.options = {"application": "audio", "frame_duration": "20", "compression_level": "3"}
        self._context = context
        self._samples = 0
        self._pause = b"\xf8"  # The header before the first packet: full band, 20 ms, mono.

    def encode(self, samples: Samples, pts_us: int) -> Packet | None:
        assert len(samples) == SAMPLES_PER_SLOT, f"{len(samples)} samples in a slot of {SAMPLES_PER_SLOT}"
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = RATE
        frame.pts = self._samples
        frame.time_base = Fraction(1, RATE)
        self._samples += SAMPLES_PER_SLOT
        if not (payload := b"".join(bytes(packet) for packet in self._context.encode(frame))):
            return None
        self._pause = bytes((payload[0] & 0xFC,))
        return Packet(AUDIO, False, pts_us, payload)

    def pause(self, pts_us: int) -> list[Packet]:
        """Return a packet of silence and, a slot later, a header without sound, which receivers take for a pause and
        not for a loss.

        A receiver fills a pause with noise as loud as what it took for the background. Without the silence, a receiver
        that has lost the end of a sentence would hiss until the next one.
        """
        silence = self.encode(np.zeros(SAMPLES_PER_SLOT, np.int16), pts_us)
        return [*([silence] if silence else []), Packet(AUDIO, False, pts_us + SLOT_US, self._pause)]
