"""A Worker of agents for tests: LiveKit's own AgentSession, with a scripted language model and a voice of one tone.

The model answers with how many things the user has said, and the last of them: so its answers tell whether the
conversation was kept. The voice takes WORD_S a word.

    python -m tests.harness.livekit_agent NAME DISPATCH LOCKS
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from livekit.agents import Agent, AgentSession
from livekit.agents.llm import LLM, ChatChunk, ChoiceDelta, LLMStream
from livekit.agents.tts import TTS, AudioEmitter, ChunkedStream, TTSCapabilities
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS

from dhsched.livekit import AgentLive, run_agent

RATE = 24_000
WORD_S = 0.15


class Counting(LLM):  # type: ignore[misc, unused-ignore]
    def chat(
        self, *, chat_ctx: Any, tools: Any = None, conn_options: Any = DEFAULT_API_CONNECT_OPTIONS, **_: Any
    ) -> LLMStream:
        return Answer(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class Answer(LLMStream):  # type: ignore[misc, unused-ignore]
    async def _run(self) -> None:
        asked = [each.text_content for each in self._chat_ctx.messages() if each.role == "user"]
        words = 100 if asked[-1] == "Speak at length." else 0
        text = f"You said {len(asked)} things, at last: {asked[-1]}" + " word" * words
        self._event_ch.send_nowait(ChatChunk(id="answer", delta=ChoiceDelta(role="assistant", content=text)))


class Tone(TTS):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__(capabilities=TTSCapabilities(streaming=False), sample_rate=RATE, num_channels=1)

    def synthesize(self, text: str, *, conn_options: Any = DEFAULT_API_CONNECT_OPTIONS) -> ChunkedStream:
        return Spoken(tts=self, input_text=text, conn_options=conn_options)


class Spoken(ChunkedStream):  # type: ignore[misc, unused-ignore]
    async def _run(self, output_emitter: AudioEmitter) -> None:
        output_emitter.initialize(request_id="spoken", sample_rate=RATE, num_channels=1, mime_type="audio/pcm")
        period = b"\x40\x1f" * 24 + b"\xc0\xe0" * 24  # 8,000 and -8,000: 500 Hz.
        output_emitter.push(period * round(len(self.input_text.split()) * WORD_S * RATE / 48))
        output_emitter.flush()


async def counting(live: AgentLive) -> None:
    session: AgentSession[None] = AgentSession(llm=Counting(), tts=Tone())
    await live.run(session, Agent(instructions="You count.", chat_ctx=await live.context()))


if __name__ == "__main__":
    name, dispatch, locks = sys.argv[1:4]
    run_agent(counting, name=name, dispatch=dispatch, lock_folder=Path(locks), pool="gpu", capacity=2)
