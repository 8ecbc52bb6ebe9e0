"""Makes packets from cues: one live's face and encoders. Everything here is work for the CPU, and runs in any thread.

Only one thread at a time: the owner of a studio waits for one cue before it hands in the next.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import cv2

from dhsched.avatar.encode import AudioEncoder, VideoEncoder
from dhsched.avatar.face import SIZE_MAX, SIZE_MIN, Face
from dhsched.avatar.performance import Cue
from dhsched.avatar.persona import Persona
from dhsched.avatar.pose import Pose
from dhsched.errors import BadSetting
from dhsched.room.packets import Packet
from dhsched.settings import bounded, check, one_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AvatarSettings:
    """The settings of a Worker that runs the avatar."""

    ROLE: ClassVar[str] = "avatar"

    size: int = bounded(320, SIZE_MIN, SIZE_MAX, "Side of the square picture in pixels; an even number.")
    fps: int = bounded(15, 1, 30, "Frames a second while the face speaks.")
    video: str = one_of("vp8", ("vp8", "h264"), "Codec of the video; the room must have the same.")

    def __post_init__(self) -> None:
        check(self)
        if self.size % 2:
            raise BadSetting(f"setting size (DHSCHED_AVATAR_SIZE) is {self.size}; it must be an even number")


@cache
def threads() -> ThreadPoolExecutor:
    """Return the threads that make pictures, one per core: more lives wait for each other, never for the event loop."""
    # Lives run in parallel; splitting one small picture over threads would only cost.
    cv2.setNumThreads(1)
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="pictures")


class Studio:
    def __init__(self, persona: Persona, settings: AvatarSettings) -> None:
        self.settings = settings
        self.face = Face(persona.face, persona.background, settings.size)
        self._video = VideoEncoder(settings.size, settings.fps, settings.video)
        self._audio = AudioEncoder()

    def warm(self) -> None:
        """Run once what takes longer the first time. The first frame that is sent is a keyframe anyway."""
        self._video.encode(self.face.draw_i420(Pose()), 0, keyframe=True)
        self._video = VideoEncoder(self.settings.size, self.settings.fps, self.settings.video)

    def make(self, cue: Cue, *, keyframe: bool) -> list[Packet]:
        """Return the packets of one slot, sound first."""
        packets: list[Packet | None] = []
        if cue.samples is not None:
            packets.append(self._audio.encode(cue.samples, cue.pts_us))
        elif cue.pause:
            packets += self._audio.pause(cue.pts_us)
        if cue.picture is not None:
            packets.append(self._video.encode(self.face.draw_i420(*cue.picture), cue.pts_us, keyframe=keyframe))
        return [packet for packet in packets if packet is not None]
