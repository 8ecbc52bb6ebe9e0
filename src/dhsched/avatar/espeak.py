"""The voices of espeak-ng, from the wheel `espeakng-loader`: a library and its data, nothing to install.

espeak-ng keeps its state in globals, so there is one engine per process and a lock around it. The engine calls back
with sound and events while it speaks. It is licensed under the GPL, version 3, which is why the avatar is an optional
extra (docs/guides/avatar.md).
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

import av
import espeakng_loader
import numpy as np

from dhsched.avatar.sentences import PIECE_CHARS_MAX
from dhsched.avatar.speech import RATE, Samples, SpeechFailed, Utterance
from dhsched.avatar.visemes import Sound

_SYNCHRONOUS = 2
_PHONEME_EVENTS, _PHONEME_IPA, _DONT_EXIT = 1, 2, 0x8000
_UTF8 = 1
_POSITION_CHARACTER = 1
_SPEED, _PITCH, _RANGE = 1, 3, 4
_EVENT_WORD, _EVENT_PHONEME = 1, 7


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # Milliseconds from the beginning.
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True, slots=True)
class Settings:
    """A voice of the engine: its espeak-ng name (language and variant), words a minute, pitch and range, 0 to 99."""

    name: str
    speed: int = 165
    pitch: int = 50
    range: int = 55


VOICES: dict[str, Settings] = {
    "anna": Settings("en-us+f4", pitch=48),
    "ben": Settings("en-us+m3", pitch=44),
    "chidi": Settings("en-029+m7", speed=158, pitch=34),
    "dora": Settings("en+f2", speed=170, pitch=56),
    "emi": Settings("en-us+f5", pitch=58, range=62),
    "zola": Settings("en+f3", speed=160, pitch=44),
    "de": Settings("de+f2"),
    "es": Settings("es+f2"),
    "fr": Settings("fr+f2"),
    "zh": Settings("cmn+f2"),
}
"""The voices that a DigitalID or a configuration may name, and their settings."""


class Engine:
    """The library, once per process. A thread that speaks holds the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        library = self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        self._chunks: list[Samples] = []
        self._sounds: list[Sound] = []
        self._words: list[tuple[float, int]] = []
        self._chosen: Settings | None = None
        options = _PHONEME_EVENTS | _PHONEME_IPA | _DONT_EXIT
        self.rate = library.espeak_Initialize(_SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), options)
        if self.rate <= 0:
            raise SpeechFailed(f"espeak-ng did not start ({self.rate}); reinstall the wheel espeakng-loader")
        # Kept in an attribute: the library has only the address, and would call into freed memory.
        self._callback = _Callback(self._on_sound)
        library.espeak_SetSynthCallback(self._callback)

    def choose(self, settings: Settings) -> None:
        """Load a voice, unless it is loaded already: loading takes longer than a short sentence."""
        if settings == self._chosen:
            return
        self._chosen = None
        if self._library.espeak_SetVoiceByName(settings.name.encode()) != 0:
            raise SpeechFailed(f"espeak-ng has no voice {settings.name!r}; reinstall the wheel espeakng-loader")
        for parameter, value in ((_SPEED, settings.speed), (_PITCH, settings.pitch), (_RANGE, settings.range)):
            self._library.espeak_SetParameter(parameter, value, 0)
        self._chosen = settings

    def synthesise(self, text: str) -> tuple[Samples, tuple[Sound, ...], tuple[tuple[float, int], ...]]:
        """Return the samples at `rate`, and the sounds and words in them."""
        self._chunks, self._sounds, self._words = [], [], []
        encoded = text.encode()
        status = self._library.espeak_Synth(encoded, len(encoded) + 1, 0, _POSITION_CHARACTER, 0, _UTF8, None, None)
        if status != 0:
            raise SpeechFailed(f"espeak-ng could not speak {len(text)} characters (status {status})")
        chunks, sounds, words = self._chunks, tuple(self._sounds), tuple(self._words)
        self._chunks, self._sounds, self._words = [], [], []
        return (np.concatenate(chunks) if chunks else np.zeros(0, np.int16)), sounds, words

    def _on_sound(self, sound: Any, count: int, events: Any) -> int:
        if count > 0 and sound:
            self._chunks.append(np.ctypeslib.as_array(sound, (count,)).copy())
        n = 0
        while events[n].type != 0:
            event = events[n]
            if event.type == _EVENT_PHONEME:
                self._sounds.append(Sound(event.audio_position / 1000, event.id.string.decode(errors="ignore")))
            elif event.type == _EVENT_WORD:
                self._words.append((event.audio_position / 1000, event.text_position - 1))
            n += 1
        return 0


@cache
def engine() -> Engine:
    return Engine()


class EspeakVoice:
    """One of VOICES. All voices share the engine."""

    def __init__(self, name: str) -> None:
        if name not in VOICES:
            raise KeyError(f"no voice {name!r}; use one of {', '.join(VOICES)}")
        self.name = name

    def say(self, text: str) -> Utterance:
        """Speak at most PIECE_CHARS_MAX characters; longer text is cut into pieces first (sentences.py)."""
        if len(text) > PIECE_CHARS_MAX:
            raise SpeechFailed(f"a piece has {len(text)} characters; cut it to at most {PIECE_CHARS_MAX}")
        speaker = engine()
        with speaker.lock:
            speaker.choose(VOICES[self.name])
            raw, sounds, words = speaker.synthesise(text)
        return Utterance(text, resampled(raw, speaker.rate), sounds, words)


def resampled(samples: Samples, rate: int) -> Samples:
    """Return the samples at RATE, filtered: stretching alone would add a hiss above the old rate."""
    if rate == RATE or not len(samples):
        return samples
    frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
    frame.sample_rate = rate
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    parts = [part.to_ndarray().reshape(-1) for part in (*resampler.resample(frame), *resampler.resample(None))]
    return np.concatenate(parts).astype(np.int16, copy=False) if parts else np.zeros(0, np.int16)
