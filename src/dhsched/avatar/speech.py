"""Voices: text in, sound with the times of its phonemes out.

A voice is anything with `say`. A call may take as long as the text is, so it runs in a thread of its own: the event
loop has reports to send (docs/guides/write-a-runtime.md). One thread serves the whole process, because there is one
engine per process; texts are short (sentences.py), so no live waits long.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dhsched.avatar.visemes import Sound

RATE = 48_000
SAY_S = 20.0  # A piece that takes longer fails with SpeechFailed; measured, a piece takes milliseconds.

Samples = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Utterance:
    """One piece of text, spoken: mono at RATE, with the times of its sounds.

    `words` has, for each word, when it begins, in seconds, and how many characters of the text are before it.
    """

    text: str
    samples: Samples
    sounds: tuple[Sound, ...]
    words: tuple[tuple[float, int], ...] = ()

    @property
    def length_s(self) -> float:
        return len(self.samples) / RATE

    def heard(self, samples: int) -> int:
        """Return how many characters were heard in the first `samples` samples: those of whole words."""
        if samples >= len(self.samples):
            return len(self.text)
        before = bisect_right(self.words, samples / RATE, key=itemgetter(0))
        return len(self.text[: self.words[before - 1][1]].rstrip()) if before else 0


class SpeechFailed(RuntimeError):
    """The engine could not speak; the message has the reason and what to do."""


class Voice(Protocol):
    """A voice. `say` blocks, and is called from one thread at a time."""

    def say(self, text: str) -> Utterance:
        """Return the text, spoken."""


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="speech")


async def say(voice: Voice, text: str) -> Utterance:
    """Speak off the loop. Raise SpeechFailed after SAY_S."""
    spoken = asyncio.get_running_loop().run_in_executor(_thread(), voice.say, text)
    try:
        async with asyncio.timeout(SAY_S):
            return await spoken
    except TimeoutError:
        raise SpeechFailed(
            f"the voice did not speak {len(text)} characters within {SAY_S:g} s; run fewer lives on this Worker"
        ) from None
