"""Decides the sound and picture of each slot of the media clock, before anything is drawn or encoded.

Pure but for its own queue: a slot number in, a cue out. Lines are spoken one after the other without a gap. While a
line is spoken every slot has sound and the face has its full frame rate. Otherwise the face is idle: a frame now and
then, more only while the face blinks, and few packets of sound, because silence need not be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dhsched.avatar.clock import SAMPLES_PER_SLOT, SLOT_S, SLOT_US
from dhsched.avatar.pose import Pose, is_quick, pose_at
from dhsched.avatar.speech import RATE, Samples, Utterance
from dhsched.avatar.visemes import REST, Mouth, Track

SLOTS_PER_S = 50
TAIL_SLOTS = 15  # Slots of silence that are sent as sound after speech, for decoders to fade out on.
PAUSE_EVERY_SLOTS = 20  # While idle, a packet without sound is sent every 400 ms.
IDLE_FRAME_EVERY = 3  # An idle face has one of this many frames of a speaking face.
LOUD = 5_000.0  # Root mean square of a voice that counts as fully loud.
ENERGY_FALL = 0.8  # Share of the energy that stays from slot to slot: a head does not shake with every syllable.
UNSEEN_SLOTS = 50  # Slots between two cues of an idle face that nobody can see.

Done = Callable[[], None]
Heard = Callable[[int], None]
"""A function that is called with how many characters of an utterance have been heard."""


@dataclass(slots=True)
class Cue:
    """One slot: sound, or a pause, or neither; a picture, or none; and the lines that ended in it. A picture that was
    due may be `left_out`."""

    slot: int
    samples: Samples | None = None
    pause: bool = False
    picture: tuple[Pose, Mouth] | None = None
    left_out: bool = False
    spoken: list[Done] = field(default_factory=list)

    @property
    def pts_us(self) -> int:
        return self.slot * SLOT_US


@dataclass(slots=True)
class Line:
    """An utterance that waits or is spoken; without an utterance, a mark between two of them."""

    done: Done
    utterance: Utterance | None = None
    track: Track | None = None
    position: int = 0  # Samples already spoken.
    heard: Heard | None = None

    @property
    def left(self) -> int:
        return len(self.utterance.samples) - self.position if self.utterance is not None else 0


class Performance:
    def __init__(self, *, seed: int, fps: int) -> None:
        self._seed = seed
        self._fps = fps
        self._lines: deque[Line] = deque()
        self._tail = TAIL_SLOTS  # A generation begins with silence that can be decoded.
        self._energy = 0.0
        self._picture_wanted = True
        self._flowing = False  # Whether the last slot had sound, so that the next one must follow it.
        self._hushed: Line | None = None

    # -- lines

    def say(self, utterance: Utterance, done: Done, heard: Heard | None = None) -> None:
        """Queue an utterance; `done` is called when its last sample has been spoken, `heard` by `tell_heard`."""
        self._lines.append(Line(done, utterance, Track(utterance.sounds, utterance.length_s), heard=heard))

    def tell_heard(self) -> None:
        """Call `heard` of the utterance that is being spoken, with how much of it has been heard."""
        line, position = self._heard()
        if line is not None and line.utterance is not None and line.heard is not None and position:
            line.heard(line.utterance.heard(position))

    def mark(self, done: Done) -> None:
        """Call `done` when everything queued before has been spoken."""
        self._lines.append(Line(done))

    def hush(self) -> None:
        """Stop speaking: the current line fades out within a slot, waiting lines are dropped and never done."""
        if self._lines and self._lines[0].position > 0:
            self._hushed = self._lines[0]
        self._lines.clear()

    def want_picture(self) -> None:
        """Give the next slot a picture, whatever the frame rate."""
        self._picture_wanted = True

    @property
    def left_s(self) -> float:
        """Return the length of the queued speech."""
        return sum(line.left for line in self._lines) / RATE

    @property
    def speaking(self) -> bool:
        """Return whether slots must follow one another: there is sound, or its tail."""
        return bool(self._lines) or self._hushed is not None or self._tail > 0

    # -- slot by slot

    def next_slot(self, last: int, current: int, *, seen: bool = True) -> int:
        """Return the next slot after `last` with something in it; `current` is the clock's slot.

        Speech leaves no slot out, however late; an idle face continues from the present.
        """
        if self.speaking and self._flowing:
            return last + 1
        slot = max(last + 1, current)
        if self.speaking:
            return slot
        if not seen:
            return max(slot, last + UNSEEN_SLOTS)
        if self._picture_wanted:
            return slot
        end = slot + PAUSE_EVERY_SLOTS
        return next((n for n in range(slot, end) if n % PAUSE_EVERY_SLOTS == 0 or self._frame_in(n)), end)

    def cue(self, slot: int, *, pictures: bool = True) -> Cue:
        """Return the cue of `slot`. Call it once for each, in order; without `pictures` a due frame is left out."""
        speaking = self.speaking
        framed = self._picture_wanted or self._frame_in(slot)
        cue = Cue(slot, left_out=framed and not pictures)
        line, position = self._heard()
        if speaking:
            cue.samples = self._sound(cue)
            loud = float(np.sqrt(np.mean(cue.samples.astype(np.float32) ** 2))) / LOUD
            self._energy = max(min(1.0, loud), self._energy * ENERGY_FALL)
        else:
            cue.pause = slot % PAUSE_EVERY_SLOTS == 0
            self._energy = 0.0
        self._flowing = speaking
        if framed and pictures:
            mouth = line.track.mouth_at(position / RATE) if line is not None and line.track is not None else REST
            cue.picture = (pose_at(slot * SLOT_S, self._seed, self._energy), mouth)
            self._picture_wanted = False
        return cue

    def _heard(self) -> tuple[Line | None, int]:
        """Return the line that is spoken at the beginning of the slot, and its position."""
        line = next((line for line in self._lines if line.utterance is not None), None)
        return line, line.position if line is not None else 0

    def _frame_in(self, slot: int) -> bool:
        frame = slot * self._fps // SLOTS_PER_S
        if slot > 0 and frame == (slot - 1) * self._fps // SLOTS_PER_S:
            return False
        if self.speaking or frame % IDLE_FRAME_EVERY == 0:
            return True
        return is_quick(slot * SLOT_S, self._seed, within_s=1 / self._fps)

    def _sound(self, cue: Cue) -> Samples:
        sound = np.zeros(SAMPLES_PER_SLOT, np.int16)
        if self._hushed is not None:
            self._fade_out(sound, self._hushed)
            self._hushed = None
            self._tail = TAIL_SLOTS
            return sound
        filled = 0
        while self._lines and (filled < SAMPLES_PER_SLOT or self._lines[0].left == 0):
            line = self._lines[0]
            if line.utterance is not None:
                part = line.utterance.samples[line.position : line.position + SAMPLES_PER_SLOT - filled]
                sound[filled : filled + len(part)] = part
                filled += len(part)
                line.position += len(part)
            if line.left == 0:
                cue.spoken.append(line.done)
                self._lines.popleft()
        self._tail = TAIL_SLOTS if filled else self._tail - 1
        return sound

    @staticmethod
    def _fade_out(sound: Samples, line: Line) -> None:
        assert line.utterance is not None
        part = line.utterance.samples[line.position : line.position + SAMPLES_PER_SLOT]
        fade = np.linspace(1, 0, SAMPLES_PER_SLOT, dtype=np.float32)[: len(part)]
        sound[: len(part)] = (part * fade).astype(np.int16)
