"""CPU time of a talking and an idle face: of speech, pictures and encoding, and of a whole live of each.

A live makes its slots at full speed, without a clock and without a network. The CPU time of this process divided by the
media time that it made is the share of a core that a live takes. Rounds of talking and idle faces alternate; the result
is their median.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import cv2

from dhsched.avatar.clock import SLOT_S
from dhsched.avatar.encode import AudioEncoder, VideoEncoder
from dhsched.avatar.espeak import EspeakVoice
from dhsched.avatar.face import Face
from dhsched.avatar.performance import Performance
from dhsched.avatar.persona import persona_of
from dhsched.avatar.pose import pose_at
from dhsched.avatar.speech import Utterance
from dhsched.avatar.studio import AvatarSettings, Studio
from dhsched.avatar.visemes import Track
from dhsched.room.packets import Packet

TEXT = (
    "The machine that speaks to you may stop at any moment.",
    "Another one takes its place, and goes on with the next sentence.",
    "You stay in the same room, and the room forgets nothing that matters.",
    "Watch the mouth, listen to the voice, and count the sentences.",
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: media seconds of each live, and rounds."""

    seconds: float = 20.0
    rounds: int = 5


def bench_avatar(size: Size, report: Callable[[str], None]) -> dict[str, Any]:
    settings = AvatarSettings()
    # As in the product: one picture is drawn by one thread.
    cv2.setNumThreads(1)
    voice = EspeakVoice(persona_of("anna").voice)
    lines = [voice.say(text) for text in TEXT]
    figures: dict[str, list[float]] = defaultdict(list)
    for n in range(size.rounds):
        found = {
            "speech_rtf": _speech_rtf(voice),
            **_picture_ms(lines, settings),
            "audio_encode_ms": _audio_ms(lines),
            "talking": _core_percent(voice, settings, seconds=size.seconds, talks=True),
            "idle": _core_percent(voice, settings, seconds=size.seconds, talks=False),
        }
        for name, value in found.items():
            figures[name].append(value)
        report(f"round {n + 1}: talking {found['talking']:.1f} % of a core, idle {found['idle']:.1f} %")
    medians = {name: statistics.median(values) for name, values in figures.items()}
    return {
        "speech_rtf": round(medians["speech_rtf"], 5),
        "frame_ms": round(medians["frame_ms"], 3),
        "encode_ms": round(medians["encode_ms"], 3),
        "audio_encode_ms": round(medians["audio_encode_ms"], 3),
        "core_percent_per_talking_live": round(medians["talking"], 2),
        "core_percent_per_idle_live": round(medians["idle"], 2),
        "idle_share_of_talking": round(medians["idle"] / medians["talking"], 3),
        "size": settings.size,
        "fps": settings.fps,
        "rounds": size.rounds,
    }


def _speech_rtf(voice: EspeakVoice) -> float:
    """Return the CPU seconds per second of speech."""
    began = time.process_time()
    spoken_s = sum(voice.say(text).length_s for text in TEXT)
    return (time.process_time() - began) / spoken_s


def _picture_ms(lines: list[Utterance], settings: AvatarSettings) -> dict[str, float]:
    """Return the CPU time of one frame: to draw it, with its planes, and to encode it."""
    face = Face("anna", "dusk", settings.size)
    encoder = VideoEncoder(settings.size, settings.fps)
    track = Track(lines[0].sounds, lines[0].length_s)
    times = [n / settings.fps for n in range(round(lines[0].length_s * settings.fps))] * 3
    drawing = encoding = 0.0
    for n, at in enumerate(times):
        began = time.process_time()
        picture = face.draw_i420(pose_at(n / settings.fps, 1, 0.4), track.mouth_at(at))
        drawn = time.process_time()
        encoder.encode(picture, n * 1_000_000 // settings.fps, keyframe=n == 0)
        drawing, encoding = drawing + drawn - began, encoding + time.process_time() - drawn
    return {"frame_ms": drawing / len(times) * 1000, "encode_ms": encoding / len(times) * 1000}


def _audio_ms(lines: list[Utterance]) -> float:
    """Return the CPU time to encode one audio packet of 20 ms."""
    encoder, samples = AudioEncoder(), lines[0].samples
    blocks = [samples[at : at + 960] for at in range(0, len(samples) - 959, 960)]
    began = time.process_time()
    for n, block in enumerate(blocks):
        encoder.encode(block, n * 20_000)
    return (time.process_time() - began) / len(blocks) * 1000


def _core_percent(voice: EspeakVoice, settings: AvatarSettings, *, seconds: float, talks: bool) -> float:
    """Return the share of a core that a whole live takes, from text to packets."""
    studio = Studio(persona_of("anna"), settings)
    studio.warm()
    performance = Performance(seed=1, fps=settings.fps)
    texts, last, made = cycle(TEXT), -1, 0
    began = time.process_time()
    while (last + 1) * SLOT_S < seconds:
        if talks and performance.left_s < 1.0:
            performance.say(voice.say(next(texts)), lambda: None)
        slot = performance.next_slot(last, last + 1)
        packets: list[Packet] = studio.make(performance.cue(slot), keyframe=last < 0)
        made += len(packets)
        last = slot
    assert made, "a live made no packet"
    return (time.process_time() - began) / seconds * 100
