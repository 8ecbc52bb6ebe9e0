"""A server with OpenAI's chat completions that answers as a test says, and knows what it was asked."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

Asked = list[dict[str, Any]]


class ScriptedLLM:
    """`answers` by the last message of the user; a token is sent every `token_s`. `asked` has the messages of each
    request, `sent` how many tokens of each were sent, `cancelled` the requests whose client went away."""

    def __init__(self, answers: dict[str, str], token_s: float = 0.0) -> None:
        self.answers = answers
        self.token_s = token_s
        self.asked: list[Asked] = []
        self.sent: list[int] = []
        self.cancelled: list[int] = []
        self.url = ""

    async def speak(self, request: web.Request) -> web.Response:
        """A voice, as OpenAI's: 24,000 samples a second, a tone for a tenth of a second a word."""
        words = len((await request.json())["input"].split())
        period = struct.pack("<48h", *([6_000] * 24 + [-6_000] * 24))
        return web.Response(body=period * (50 * words), content_type="audio/pcm")

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        number = len(self.asked)
        self.asked.append(body["messages"])
        self.sent.append(0)
        question = next(each["content"] for each in reversed(body["messages"]) if each["role"] == "user")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for word in self.answers[question].split():
                await response.write(chunk({"content": word + " "}))
                self.sent[number] += 1
                await asyncio.sleep(self.token_s)
            await response.write(chunk({}, "stop") + b"data: [DONE]\n\n")
        except (ConnectionResetError, asyncio.CancelledError):
            self.cancelled.append(number)
            raise
        return response


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    said = {
        "id": "scripted", "object": "chat.completion.chunk", "created": 0, "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }  # fmt: skip
    return b"data: " + json.dumps(said).encode() + b"\n\n"


@asynccontextmanager
async def scripted_llm(answers: dict[str, str], token_s: float = 0.0) -> AsyncIterator[ScriptedLLM]:
    llm = ScriptedLLM(answers, token_s)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", llm.complete)
    app.router.add_post("/v1/audio/speech", llm.speak)
    # A request is cancelled when its client goes away: that is what a test of cancelled requests sees.
    async with TestServer(app, handler_cancellation=True) as server:
        llm.url = str(server.make_url("/v1"))
        yield llm
