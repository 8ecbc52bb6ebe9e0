"""The processor of a live in its pipeline. Its place is behind `transport.output()`, before the assistant's aggregator.

There it sees words as they are heard, and the end of a turn: then it sends a mark after the frames, and when the mark
has reached the end of the pipeline, the aggregator has written to the context what was heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipecat.frames.frames import (
    AggregatedTextFrame,
    BotSpeakingFrame,
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    ControlFrame,
    Frame,
    FunctionCallCancelFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    StartFrame,
    SystemFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.utils.string import TextPartForConcatenation, concatenate_aggregated_text

from dhsched.pipecat.voice import Part, Voice


class OurInterruptionFrame(InterruptionFrame):  # type: ignore[misc]
    """An interruption that the live's input asked for; others come from inside the pipeline."""


@dataclass(frozen=True, slots=True)
class Said:
    """The words that were heard of turn `turn`. `cut`: an interruption ended the turn; `ours`: it was our own. `late`:
    the words that went to the context last."""

    turn: int = 0
    text: str = ""
    cut: bool = False
    late: str = ""
    ours: bool = False


@dataclass
class TurnOverFrame(ControlFrame):  # type: ignore[misc]
    """The mark behind the last frame of a turn."""

    said: Said = field(default_factory=Said)


@dataclass
class TurnCutFrame(SystemFrame):  # type: ignore[misc]
    """The mark behind an interruption."""

    said: Said = field(default_factory=Said)


MARKS = (TurnOverFrame, TurnCutFrame)
COMMITS = (LLMFullResponseEndFrame, LLMAssistantPushAggregationFrame)
"""Frames that make the aggregator write the words to the context. Words and these frames come by a clock, sound by a
queue, so they may be ahead of the sound. These frames wait here until the sound was sent."""


class LiveProcessor(FrameProcessor):  # type: ignore[misc]
    """Watch the frames behind the output. `on_speaking` is called while the bot speaks, `on_word` after each word."""

    def __init__(self, on_speaking: Callable[[], None], on_word: Callable[[], None]) -> None:
        super().__init__()
        self.voice = Voice()
        self.turn = 0  # Number of the turn that `begin` has begun last; each mark carries it.
        self.started = False  # Whether it is in a pipeline that runs.
        self.changed = asyncio.Event()  # Set by each frame that may make the voice idle.
        self._commit: Frame | None = None  # It waits for the end of the sound.
        self._on_speaking = on_speaking
        self._on_word = on_word

    def begin(self) -> int:
        """Begin a turn, and return its number."""
        self.turn += 1
        self.voice.begin()
        return self.turn

    @property
    def heard(self) -> str:
        """Return what was heard of the turn up to now."""
        return joined(self.voice.heard)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is not FrameDirection.DOWNSTREAM:
            await self.push_frame(frame, direction)
            return
        if isinstance(frame, InterruptionFrame):
            said = self._said(cut=True, ours=isinstance(frame, OurInterruptionFrame))
            self.voice.interrupted()
            self.voice.begin()
            self._commit = None
            await self.push_frame(frame, direction)
            await self.push_frame(TurnCutFrame(said=said))
        elif isinstance(frame, COMMITS) and self.voice.sounding:
            await self._release()
            self._commit = frame
        elif not isinstance(frame, TTSTextFrame) or self._heard(frame):
            if isinstance(frame, LLMFullResponseStartFrame):
                await self._release()
            await self._pass(frame)
        self.changed.set()

    async def _pass(self, frame: Frame) -> None:
        """Send a frame on, and a mark behind it if the turn is over."""
        self._note(frame)
        await self.push_frame(frame)
        if not self.voice.sounding:
            await self._release()
        if self.voice.over:
            said = self._said(cut=False)
            self.voice.begin()
            await self.push_frame(TurnOverFrame(said=said))

    async def _release(self) -> None:
        if (commit := self._commit) is not None:
            self._commit = None
            self._note(commit)
            await self.push_frame(commit)

    def _note(self, frame: Frame) -> None:
        voice = self.voice
        match frame:
            case StartFrame():
                self.started = True
            case BotStartedSpeakingFrame():
                voice.speaking = True
            case BotStoppedSpeakingFrame():
                voice.bot_stopped()
            case BotSpeakingFrame():
                self._on_speaking()
            case UserStartedSpeakingFrame():
                voice.user_speaking = True
            case UserStoppedSpeakingFrame():
                voice.user_speaking = False
            case TTSStartedFrame():
                voice.speech_started(frame.context_id)
            case TTSStoppedFrame():
                voice.speech_stopped(frame.context_id)
            case LLMFullResponseStartFrame():
                voice.response_started()
            case LLMFullResponseEndFrame():
                voice.response_ended()
            case LLMAssistantPushAggregationFrame():
                voice.committed()
            case FunctionCallsStartedFrame():
                for call in frame.function_calls:
                    voice.call_started(call.tool_call_id)
            case FunctionCallResultFrame():
                voice.call_ended(frame.tool_call_id, answered=answers(frame))
            case FunctionCallCancelFrame():
                voice.call_ended(frame.tool_call_id, answered=bool(frame.run_llm))

    def _heard(self, frame: TTSTextFrame) -> bool:
        """Note words; return False for words that nobody heard, which must not reach the context either."""
        if not frame.append_to_context:
            return True
        text = frame.raw_text if isinstance(frame, AggregatedTextFrame) and frame.raw_text else frame.text
        heard = self.voice.word(Part(text, bool(frame.includes_inter_frame_spaces), frame.context_id))
        if heard:
            self._on_word()
        return heard

    def _said(self, *, cut: bool, ours: bool = False) -> Said:
        return Said(self.turn, self.heard, cut, joined(self.voice.uncommitted), ours)


def answers(frame: FunctionCallResultFrame) -> bool:
    """Return whether the model is run with this result."""
    properties: Any = frame.properties
    if properties is not None and properties.run_llm is not None:
        return bool(properties.run_llm)
    return frame.run_llm is not False


def joined(parts: list[Part]) -> str:
    """Return the words as Pipecat writes them to a context."""
    return str(concatenate_aggregated_text([TextPartForConcatenation(part.text, part.spaced) for part in parts]))
