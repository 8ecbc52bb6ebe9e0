"""Bots of the tests: real Pipecat pipelines, with a voice that takes time and a scripted language model.

`spoken` and `answered` are what a child process imports. The voice speaks WORD_S a word to nobody: `Ether` is an output
without a peer that takes as long as the sound does.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncGenerator
from typing import Any

from pipecat.frames.frames import Frame, OutputAudioRawFrame, StartFrame, TTSAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams

from dhsched.pipecat import Live, run_bot

RATE = 16_000
WORD_S = 0.1
TONE_HZ = 440


class SlowVoice(TTSService):  # type: ignore[misc]
    """A voice of one tone that reports when each word is heard."""

    def __init__(self, word_s: float = WORD_S, tone_hz: int = TONE_HZ) -> None:
        settings = TTSSettings(model="tone", voice="tone", language=None)
        super().__init__(sample_rate=RATE, push_text_frames=False, push_start_frame=True, push_stop_frames=True,
                         stop_frame_timeout_s=1.0, settings=settings)  # fmt: skip
        self._word_s = word_s
        self._tone_hz = tone_hz
        self._spoken: tuple[str, int] = ("", 0)  # Words of the current piece of speech, which may have many sentences.

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        words = text.split()
        before = self._spoken[1] if self._spoken[0] == context_id else 0
        self._spoken = context_id, before + len(words)
        for n, word in enumerate(words, before):
            await self.add_word_timestamps([(word, n * self._word_s)], context_id)
            yield TTSAudioRawFrame(tone(self._word_s, self._tone_hz), RATE, 1, context_id=context_id)


class Ether(BaseOutputTransport):  # type: ignore[misc]
    """An output that nobody hears: a chunk takes as long as its sound."""

    def __init__(self) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_sample_rate=RATE))

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        await asyncio.sleep(len(frame.audio) / 2 / RATE)
        return True


def tone(seconds: float, hz: int) -> bytes:
    """Return a square tone as 16-bit samples."""
    half = RATE // hz // 2
    samples = [6_000 if n // half % 2 else -6_000 for n in range(int(seconds * RATE))]
    return struct.pack(f"<{len(samples)}h", *samples)


PROMPT = [{"role": "system", "content": "You are Anna."}]


async def spoken(live: Live) -> None:
    """Speak what is pushed."""
    context = await live.context(PROMPT)
    live.session.log(f"context {live.session.generation.epoch}: {[each['content'] for each in context.messages]}")
    _, assistant = LLMContextAggregatorPair(context)
    await live.run(Pipeline([SlowVoice(), Ether(), live.processor, assistant]))


async def answered(live: Live) -> None:
    """Have a language model answer what is pushed."""
    context = await live.context(PROMPT)
    user, assistant = LLMContextAggregatorPair(context)
    llm: Any = OpenAILLMService(
        api_key="none", base_url=os.environ["LLM_URL"], settings=OpenAILLMService.Settings(model="scripted")
    )
    await live.run(Pipeline([user, llm, SlowVoice(), Ether(), live.processor, assistant]), pushed="answered")


async def called(live: Live) -> None:
    """Speak what is pushed to a SmallWebRTC client, each generation in a tone of its own."""
    transport = live.transport(TransportParams(audio_out_enabled=True, audio_out_sample_rate=RATE))
    _, assistant = LLMContextAggregatorPair(await live.context(PROMPT))
    voice = SlowVoice(tone_hz=tone_of(live.session.generation.epoch))
    steps = [transport.input(), voice, transport.output(), live.processor, assistant]
    await live.run(Pipeline(steps))


def tone_of(epoch: int) -> int:
    """Return a tone that divides RATE evenly enough to be counted."""
    return 250 if epoch == 1 else 1_000


if __name__ == "__main__":
    run_bot(globals()[os.environ["TEST_BOT"]], exec_env="LLM_URL")
