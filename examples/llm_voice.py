"""A voice with a language model behind it: any server that offers OpenAI's chat completions with streaming, such as
vLLM or SGLang.

LLM_URL is the server's address up to `/v1`, LLM_MODEL the model's name, LLM_KEY its key if it needs one. The prompt is
in the live's configuration: `{"prompt": "You are Anna, a guide in a museum."}`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from dhsched.worker import Session, run

Message = dict[str, str]
STATE_BYTES = 3_500  # A state has at most 4,096 bytes: older messages than fit are forgotten.


async def voice(session: Session) -> None:
    async with aiohttp.ClientSession() as http:
        async for item in session.inputs():
            if item.kind != "text":
                continue
            messages: list[Message] = [*(session.state or []), {"role": "user", "content": item.text}]
            said = await say(session, http, messages)
            if session.stopping.is_set():
                return  # The live has moved: the next runtime is given the item again.
            # Saved with the ack of this item: a runtime that takes over remembers the same talk.
            session.state = recent([*messages, {"role": "assistant", "content": said}])


async def say(session: Session, http: aiohttp.ClientSession, messages: list[Message]) -> str:
    """Speak the model's answer, and return what was said. An interrupt, or a move of the live, cancels the request, so
    that the server generates no tokens that nobody hears; the interrupt itself is the next item."""
    said: list[str] = []

    async def speaking() -> None:
        async for words in answer(http, session.config.get("prompt", ""), messages):
            said.append(words)
            speak(session, words)

    waits = (speaking(), session.interrupted.wait(), session.stopping.wait())
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()  # The connection of a request is closed with it.
        await asyncio.gather(*tasks, return_exceptions=True)
    return "".join(said)


async def answer(http: aiohttp.ClientSession, prompt: str, messages: list[Message]) -> AsyncIterator[str]:
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


def speak(session: Session, words: str) -> None:
    """Here the words would become sound. A real voice waits until they are spoken, so that the ack says so."""
    print(words, end="", flush=True)


def recent(messages: list[Message]) -> list[Message]:
    while messages and len(json.dumps(messages)) > STATE_BYTES:
        messages = messages[1:]
    return messages


if __name__ == "__main__":
    run(voice, pool="gpu", capacity=100)
