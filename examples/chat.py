"""A chat app: a language model's answers are spoken by a live, and the history has what its user has heard.

    python examples/chat.py LIVE

Type a line to ask. Type the next one while the avatar speaks to cut in: the answer stops, and the model is told only as
much of it as was heard. `answer` stands for your model.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from dhsched.client import Client, Heard, Turn

History = list[dict[str, str]]


async def answer(history: History) -> AsyncIterator[str]:
    """Yield the tokens of an answer. Call your model here."""
    asked = history[-1]["content"]
    said = f"You said: {asked}. I have heard you. Is there anything else that you would like to talk about?"
    for word in said.split():
        await asyncio.sleep(0.05)
        yield word + " "


async def chat(client: Client, live: str, questions: AsyncIterator[str]) -> History:
    """Answer one question after the other. A question that comes while an answer is spoken interrupts the answer."""
    history: History = []
    turn: Turn | None = None
    async for question in questions:
        if turn is not None:
            remember(history, await turn.interrupt())
        history.append({"role": "user", "content": question})
        turn = client.speak(live, answer(history))
    if turn is not None:
        remember(history, await turn)
    return history


def remember(history: History, heard: Heard) -> None:
    """Note what was heard, and no more: the model must not go on from words that nobody heard."""
    if heard.text:
        history.append({"role": "assistant", "content": heard.text})


async def lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.strip()


async def main(live: str) -> None:
    async with Client() as client:
        for message in await chat(client, live, lines()):
            print(f"{message['role']}: {message['content']}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
