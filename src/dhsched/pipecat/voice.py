"""The voice of a bot, followed by the frames that leave its output: when a turn is over, and what was heard. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Part(NamedTuple):
    """Words that were heard; `spaced` if they have their own spaces; `speech` names the piece of speech they are of."""

    text: str
    spaced: bool = False
    speech: str | None = None


@dataclass(slots=True)
class Voice:
    """The state of one pipeline's voice. A turn is over once an answer has ended and nothing of it goes on."""

    speaking: bool = False
    user_speaking: bool = False
    responses: int = 0  # Answers of the language model that have begun and not ended.
    calls: set[str] = field(default_factory=set)  # Function calls without a result.
    heard: list[Part] = field(default_factory=list)  # Of this turn, up to now.
    uncommitted: list[Part] = field(default_factory=list)  # Of that, what is not in the context yet.
    sounding: set[str] = field(default_factory=set)  # Pieces of speech of this turn that have begun and not ended,
    _sounded: set[str] = field(default_factory=set)  # those that have ended,
    _cut: set[str] = field(default_factory=set)  # and those that the last interruption has cut.
    _ended: bool = False

    @property
    def idle(self) -> bool:
        """Return whether nobody speaks, and no answer is on its way."""
        return not (self.speaking or self.sounding or self.user_speaking or self.responses or self.calls)

    @property
    def over(self) -> bool:
        """Return whether the turn has ended: `begin` starts the next."""
        return self._ended and not (self.speaking or self.sounding or self.responses or self.calls)

    def begin(self) -> None:
        """Begin a turn: nothing of it is heard yet."""
        self.heard, self.uncommitted, self._ended = [], [], False
        self.sounding, self._sounded = set(), set()

    # -- what happens

    def response_started(self) -> None:
        self.responses += 1

    def response_ended(self) -> None:
        """Note that an answer of the model was heard; its words go to the context."""
        self.responses = max(0, self.responses - 1)
        self.committed()

    def committed(self) -> None:
        self.uncommitted = []
        self._ended = True

    def speech_started(self, speech: str | None) -> None:
        if speech is not None and speech not in self._sounded:
            self.sounding.add(speech)

    def speech_stopped(self, speech: str | None) -> None:
        if speech is not None:
            self.sounding.discard(speech)
            self._sounded.add(speech)

    def bot_stopped(self) -> None:
        """Note that the output has sent all sound, which ends the speech of a voice that does not report its end."""
        self.speaking = False
        self._sounded |= self.sounding
        self.sounding = set()

    def call_started(self, call: str) -> None:
        self.calls.add(call)

    def call_ended(self, call: str, *, answered: bool) -> None:
        """Note that a function has returned. `answered`: the model answers to the result, so the turn goes on."""
        self.calls.discard(call)
        self._ended = self._ended and not answered

    def word(self, part: Part) -> bool:
        """Note words that were heard; return False for words of a speech that was cut before: nobody heard them."""
        if part.speech in self._cut:
            return False
        self.speech_started(part.speech)
        self.heard.append(part)
        self.uncommitted.append(part)
        return True

    def interrupted(self) -> None:
        """Drop everything that is being said or on its way."""
        self.responses = 0
        self.calls.clear()
        self.speaking = False
        self._cut = self.sounding | self._sounded


def chars_heard(text: str, heard: str) -> int:
    """Return how many characters of `text` were heard, if `heard` is its beginning, with spaces as a voice has them."""
    chars = [char for char in heard if not char.isspace()]
    matched = 0
    for at, char in enumerate(text):
        if char.isspace():
            continue
        if matched == len(chars) or chars[matched] != char:
            return len(text[:at].rstrip())
        matched += 1
    return len(text)
