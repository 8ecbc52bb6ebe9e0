"""A voice with a language model behind it: any server that offers OpenAI's chat completions with streaming, such as
vLLM or SGLang. Tokens become sentences, and a sentence is spoken while the next one is generated.

LLM_URL is the server's address up to `/v1`, LLM_MODEL the model's name, LLM_KEY its key if it needs one. The prompt is
in the live's configuration: `{"prompt": "You are Anna, a guide in a museum."}`.

The voice is espeak-ng's (the extra `avatar`); yours takes its place in `voice`. `Player` sends the sound to the room.
An interrupt, or a move of the live, stops the sound and cancels the request. The journal has what was heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp
import numpy as np

from dhsched.avatar.clock import SAMPLES_PER_SLOT, SLOT_US, MediaClock
from dhsched.avatar.encode import AudioEncoder, VideoEncoder
from dhsched.avatar.espeak import EspeakVoice
from dhsched.avatar.publisher import Publisher
from dhsched.avatar.sentences import PIECE_CHARS_MAX, pieces
from dhsched.avatar.speech import Samples, Utterance, Voice, say
from dhsched.errors import TooManyEmits
from dhsched.room.packets import Packet
from dhsched.tasks import cancel
from dhsched.worker import Item, Session, run

Message = dict[str, str]
MESSAGES_MAX = 200  # Of a longer talk the older half is forgotten.
AHEAD_MAX = 2  # Sentences that are ready before they are heard; then the model's tokens wait.
TURN_S = 60.0  # An item is a stall if it takes so much longer than its sound.
END = re.compile(r"(?<=[.!?])\s+")
SIZE, PICTURE_SLOTS = 64, 10  # A room shows who has a picture: a grey one, five times a second.


async def voice(session: Session) -> None:
    """The runtime."""
    speaker = EspeakVoice("anna")
    await say(speaker, "a")  # The voice is loaded before the claim, which the next line asks for.
    journal = await session.journal()
    player = Player(session)
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
        playing = group.create_task(player.run())
        async for item in session.inputs():
            if item.kind == "config" or not item.text.strip() or session.interrupted.is_set():
                continue
            asked = {"role": "user", "content": item.text}
            tokens = answer(http, session.config.get("prompt", ""), [*journal.values(), asked])
            heard = await speak(session, item, player, speaker, tokens)
            if session.stopping.is_set():
                break  # The live has moved: the next runtime is given the item again.
            # Stored with the ack of this item: a runtime that takes over remembers the same talk.
            if len(journal) >= MESSAGES_MAX:
                journal.replace(journal.values()[-MESSAGES_MAX // 2 :])
            journal.append(asked)
            journal.append({"role": "assistant", "content": heard})
        playing.cancel()


async def speak(session: Session, item: Item, player: Player, speaker: Voice, tokens: AsyncGenerator[str, None]) -> str:
    """Speak the model's answer while it is generated, and return what of it was heard. An interrupt, or a move of the
    live, cancels the request, so that the server generates no tokens that nobody hears; the interrupt is the next
    item."""
    ready: asyncio.Queue[Utterance | None] = asyncio.Queue(AHEAD_MAX)
    heard: list[str] = []

    async def make() -> None:
        async with contextlib.aclosing(tokens):  # Closes the request, wherever this is cancelled.
            async for sentence in sentences(tokens):
                await ready.put(await say(speaker, sentence))
        await ready.put(None)

    async def play() -> None:
        while (utterance := await ready.get()) is not None:
            session.extend(utterance.length_s + TURN_S)
            try:
                await player.play(utterance.samples)
            finally:
                heard.append(utterance.text[: utterance.heard(player.played)])
                with contextlib.suppress(TooManyEmits):  # Nobody reads them.
                    session.emit("heard", {"text": heard[-1]}, item=item)

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(make())
            group.create_task(play())

    session.extend(TURN_S)
    speaking = asyncio.create_task(both())
    ends = [asyncio.create_task(event.wait()) for event in (session.interrupted, session.stopping)]
    try:
        await asyncio.wait([speaking, *ends], return_when=asyncio.FIRST_COMPLETED)
        if speaking.done():
            speaking.result()
    finally:
        await cancel(speaking, *ends)
    return " ".join(filter(None, heard))


async def answer(http: aiohttp.ClientSession, prompt: str, messages: list[Message]) -> AsyncGenerator[str, None]:
    """Yield the model's answer as it is generated."""
    body = {
        "model": os.environ.get("LLM_MODEL", "default"),
        "messages": [{"role": "system", "content": prompt}, *messages],
        "stream": True,
    }
    url = os.environ.get("LLM_URL", "http://127.0.0.1:8000/v1")
    key = {"Authorization": f"Bearer {os.environ['LLM_KEY']}"} if "LLM_KEY" in os.environ else {}
    async with http.post(f"{url}/chat/completions", json=body, headers=key) as response:
        response.raise_for_status()
        async for line in response.content:
            data = line.decode().strip().removeprefix("data: ")
            if data == "[DONE]":
                return
            if data:
                chunk: dict[str, Any] = json.loads(data)
                if words := chunk["choices"][0]["delta"].get("content"):
                    yield words


async def sentences(tokens: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield what can be spoken, as soon as it is whole: sentences, and parts of long ones."""
    text = ""
    async for token in tokens:
        *whole, text = END.split(text + token)
        if len(text) > PIECE_CHARS_MAX:
            before, _, text = text.rpartition(" ")
            whole.append(before)
        for sentence in whole:
            for piece in pieces(sentence):
                yield piece
    for piece in pieces(text):
        yield piece


class Player:
    """Sends sound to the room at its pace, in slots of 20 ms: what is played, else silence."""

    def __init__(self, session: Session) -> None:
        self.played = 0  # Samples of what was given to `play` last.
        self._session = session
        self._samples: Samples = np.zeros(0, np.int16)
        self._over = asyncio.Event()
        self._keyframe = True
        self._picture = np.full((SIZE * 3 // 2, SIZE), 128, np.uint8)
        self._audio, self._video = AudioEncoder(), VideoEncoder(SIZE, 1_000_000 // (SLOT_US * PICTURE_SLOTS))

    async def play(self, samples: Samples) -> None:
        """Return when the last sample was played. If this is cancelled, nothing more of it is played."""
        self._samples, self.played = samples, 0
        self._over.clear()
        try:
            if len(samples):
                await self._over.wait()
        finally:
            self._samples = self._samples[:0]

    async def run(self) -> None:
        """Play from the claim on. Without a room the sound passes at the same pace."""
        session, loop = self._session, asyncio.get_running_loop()
        await session.claimed.wait()
        publisher = Publisher(
            live=session.live,
            epoch=session.generation.epoch,
            where=lambda: session.publish,
            on_keyframe=self._want_keyframe,
        )
        if session.publish is not None:
            publisher.start()
        clock, slot = MediaClock(loop.time()), 0
        try:
            while True:
                due = clock.due(slot, loop.time())
                session.late(due.stood_s)
                await asyncio.sleep(due.wait_s)
                publisher.put(self._packets(slot))
                slot += 1
        finally:
            await publisher.close()

    def _packets(self, slot: int) -> list[Packet]:
        sound = self._samples[self.played : self.played + SAMPLES_PER_SLOT]
        self.played += len(sound)
        if self.played >= len(self._samples):
            self._over.set()
        packets = [self._audio.encode(np.pad(sound, (0, SAMPLES_PER_SLOT - len(sound))), slot * SLOT_US)]
        if slot % PICTURE_SLOTS == 0:
            keyframe, self._keyframe = self._keyframe, False
            packets.append(self._video.encode(self._picture, slot * SLOT_US, keyframe=keyframe))
        return [packet for packet in packets if packet is not None]

    def _want_keyframe(self) -> None:
        self._keyframe = True


if __name__ == "__main__":
    run(voice, pool="gpu", capacity=20)
