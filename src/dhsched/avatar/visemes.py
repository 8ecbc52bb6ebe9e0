"""Maps the sounds of speech to the shapes of a mouth. Pure: sounds with times in, a shape for any moment out.

A viseme is the shape of a group of sounds: `p`, `b` and `m` are one, because lips cannot be told apart there. A mouth
never jumps from one to the next: each sound pulls at the shape with a weight that grows towards its middle and fades
behind it, so neighbours colour each other. Closed lips pull hardest: a `p` that does not close looks wrong, while
nobody misses half an `a`. Lips move before they are heard, hence the lead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

LEAD_S = 0.020  # The mouth is this far ahead of the sound.
REACH_S = 0.070  # How far a sound is seen before it begins and after it ends.
SOUND_MAX_S = 0.6  # A longer sound counts as a sound and a pause.


class Mouth(NamedTuple):
    """A shape: each 0 to 1. `wide` is 0 for rounded lips and 1 for spread ones, a mouth at rest has a half."""

    open: float = 0.0
    wide: float = 0.5
    teeth: float = 0.0
    tongue: float = 0.0


class Viseme(NamedTuple):
    mouth: Mouth
    weight: float  # How hard it pulls at its neighbours.


VISEMES: dict[str, Viseme] = {
    "rest": Viseme(Mouth(0.0, 0.5, 0.0, 0.0), 1.0),
    "PP": Viseme(Mouth(0.0, 0.42, 0.0, 0.0), 8.0),  # p b m
    "FF": Viseme(Mouth(0.10, 0.52, 1.0, 0.0), 5.0),  # f v
    "TH": Viseme(Mouth(0.22, 0.55, 0.7, 1.0), 2.0),  # think, this
    "DD": Viseme(Mouth(0.24, 0.58, 0.7, 0.6), 1.4),  # t d
    "KK": Viseme(Mouth(0.32, 0.52, 0.3, 0.1), 1.0),  # k g h
    "CH": Viseme(Mouth(0.26, 0.22, 0.9, 0.0), 2.4),  # ch j sh
    "SS": Viseme(Mouth(0.14, 0.72, 1.0, 0.0), 2.0),  # s z
    "NN": Viseme(Mouth(0.24, 0.58, 0.5, 0.7), 1.2),  # n l
    "RR": Viseme(Mouth(0.28, 0.28, 0.3, 0.2), 1.4),  # r
    "AA": Viseme(Mouth(0.95, 0.56, 0.35, 0.3), 1.8),  # father, cat
    "EE": Viseme(Mouth(0.55, 0.74, 0.55, 0.3), 1.4),  # bed, about
    "II": Viseme(Mouth(0.32, 0.92, 0.7, 0.2), 1.8),  # see, sit
    "OO": Viseme(Mouth(0.68, 0.16, 0.1, 0.1), 2.2),  # or, go
    "UU": Viseme(Mouth(0.34, 0.02, 0.0, 0.0), 2.4),  # you, we
}

REST = VISEMES["rest"].mouth

_SOUNDS: dict[str, str] = {
    "PP": "p b m ɓ ʙ",
    "FF": "f v ʋ ɱ pf",
    "TH": "θ ð",
    "DD": "t d ɾ ɗ ʈ ɖ",
    "KK": "k ɡ g ŋ h x ɣ q ɢ χ ʁ ħ ʕ ʔ ɦ c ɟ",
    "CH": "tʃ dʒ ʃ ʒ tɕ dʑ ɕ ʑ ʂ ʐ ç",
    "SS": "s z ts dz",
    "NN": "n l ɲ ɳ ʎ ɭ ɬ ɫ",
    "RR": "r ɹ ɻ ɽ ɜ ɝ ɚ ʀ",
    "AA": "a ɑ æ ʌ ɶ aɪ aʊ ɐ",
    "EE": "e ɛ ə œ ø ɘ ɵ eɪ",
    "II": "i ɪ j y ʏ ɨ ᵻ",
    "OO": "o ɔ ɒ ɤ oʊ ɔɪ",
    "UU": "u ʊ w ʉ ɯ ɥ ʍ",
}
_BY_SOUND = {sound: viseme for viseme, sounds in _SOUNDS.items() for sound in sounds.split()}
_LONGEST = max(map(len, _BY_SOUND))


class Sound(NamedTuple):
    """A phoneme (IPA; empty for a pause) and when it begins, in seconds from the start of the utterance."""

    at_s: float
    phoneme: str


def viseme_of(phoneme: str) -> str:
    """Return the viseme of a phoneme by its beginning; stress marks and unknown symbols are skipped."""
    rest = phoneme.strip("ˈˌ_ː .|‖")
    while rest:
        for length in range(min(_LONGEST, len(rest)), 0, -1):
            if found := _BY_SOUND.get(rest[:length]):
                return found
        rest = rest[1:]
    return "rest"


class Track:
    """The shapes of the mouth over one utterance."""

    __slots__ = ("_begins", "_ends", "_starts", "_visemes")

    def __init__(self, sounds: Sequence[Sound], length_s: float) -> None:
        ordered = sorted(sound for sound in sounds if sound.at_s <= length_s)
        self._visemes: list[Viseme] = []
        self._begins: list[float] = []
        self._ends: list[float] = []
        for n, sound in enumerate(ordered):
            until = ordered[n + 1].at_s if n + 1 < len(ordered) else length_s
            self._visemes.append(VISEMES[viseme_of(sound.phoneme)])
            self._begins.append(sound.at_s)
            self._ends.append(min(until, sound.at_s + SOUND_MAX_S))
        self._starts = [begin - REACH_S for begin in self._begins]

    def mouth_at(self, time_s: float) -> Mouth:
        """Return the shape at a moment of the audio; LEAD_S is added here."""
        at = time_s + LEAD_S
        sums = [0.0, 0.0, 0.0, 0.0]
        total = 0.0
        # Sounds do not overlap by more than their reach, so few before this one can still be seen.
        for n in range(bisect_right(self._starts, at) - 1, -1, -1):
            if self._ends[n] + SOUND_MAX_S + REACH_S < at:
                break
            pull = self._visemes[n].weight * _pull(at, self._begins[n], self._ends[n])
            if pull > 0:
                total += pull
                for i, value in enumerate(self._visemes[n].mouth):
                    sums[i] += pull * value
        if total <= 0:
            return REST
        # Where hardly any sound pulls, the mouth falls shut.
        ease = max(0.0, 0.25 - total)
        total += ease
        return Mouth(*((value + ease * rest) / total for value, rest in zip(sums, REST, strict=True)))


def _pull(at: float, begin: float, end: float) -> float:
    """Return 1 in the middle of a sound, falling to 0 at REACH_S outside of it."""
    middle, half = (begin + end) / 2, (end - begin) / 2 + REACH_S
    away = abs(at - middle) / half
    return (1 - away * away) ** 3 if away < 1 else 0.0
