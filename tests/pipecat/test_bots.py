"""Bots in processes of their own, in a deployment: killed with `kill -9`, cut in, moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dhsched.client import Client
from tests.harness.bot_workers import WAIT_S, bot_worker, until_ready, until_said
from tests.harness.fleet import Fleet, fleet, until_so
from tests.harness.processes import processes
from tests.harness.scripted_llm import scripted_llm

pytestmark = pytest.mark.pipecat


class Watched:
    """What an application knows of a live: its events."""

    def __init__(self) -> None:
        self.emits: list[dict[str, Any]] = []

    def of(self, name: str) -> list[dict[str, Any]]:
        return [each["data"] for each in self.emits if each["name"] == name]

    async def until(self, name: str, wanted: Any) -> dict[str, Any]:
        async def ask() -> list[dict[str, Any]]:
            return [each for each in self.of(name) if wanted(each)]

        return (await until_so(ask, bool, f"{name} in {self.emits}", WAIT_S))[0]


@asynccontextmanager
async def watching(f: Fleet, live: str) -> AsyncIterator[tuple[Client, Watched]]:
    watched = Watched()

    async def follow(client: Client) -> None:
        async for event in client.events(live):
            if event.name == "emitted":
                watched.emits.append(event.data)

    async with Client(f.dispatch, f.infer) as client:
        following = asyncio.create_task(follow(client))
        try:
            yield client, watched
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def test_a_killed_bot_goes_on_with_its_context_and_repeats_nothing(tmp_path: Path) -> None:
    answers = {
        "Who are you?": "I am Anna. I guide people here.",
        "Where is the door?": "The door is to your left.",
        "And the exit?": "The exit is the same door, there is no other one in this house.",
        "Thank you.": "You are welcome.",
    }
    async with scripted_llm(answers) as llm, fleet(tmp_path, with_loops=True) as f, processes(f) as p:
        workers = [await bot_worker(p, name, "answered", LLM_URL=llm.url) for name in ("w1", "w2")]
        await until_ready(f, 2)
        await f.create("L")
        async with watching(f, "L") as (client, watched):
            for n, question in enumerate([*answers][:2], 1):
                await client.push("L", question, boundary=True)
                await until_said(f, "L", n)
            serving = (await client.get("L")).worker
            for question in [*answers][2:]:
                await client.push("L", question, boundary=True)
            await until_so(lambda: asyncio.sleep(0, len(llm.asked)), lambda n: n >= 3, "the third question", WAIT_S)
            [victim] = [each for each in workers if serving.startswith(each.name)]
            victim.kill()
            await until_said(f, "L", 4)
            heard = await watched.until("heard", lambda each: each["seq"] == 4)
            assert heard["text"] == "You are welcome." and not heard["cut"]
        # The last request has all that was said, each once, and what was accepted was answered in its order.
        said = [(each["role"], each["content"].strip()) for each in llm.asked[-1]]
        talk = [each for question in answers for each in (("user", question), ("assistant", answers[question]))]
        assert said == [("system", "You are Anna."), *talk[:-1]]
        # Only the item that was not acked was asked again.
        asked = [next(each["content"] for each in reversed(one) if each["role"] == "user") for one in llm.asked]
        assert [question for question in asked if question != "And the exit?"] == [
            "Who are you?", "Where is the door?", "Thank you.",
        ]  # fmt: skip
        assert asked.count("And the exit?") in (1, 2)
        [again] = [each["data"]["seq"] for each in watched.emits if each["name"] == "heard" and each["epoch"] == 2][:1]
        assert again in (3, 4), "nothing that was acked is spoken again"


async def test_a_barge_in_keeps_exactly_what_was_heard(tmp_path: Path) -> None:
    text = " ".join(f"word{n}" for n in range(200)) + "."
    async with fleet(tmp_path, with_loops=True) as f, processes(f) as p:
        workers = [await bot_worker(p, name, "spoken") for name in ("w1", "w2")]
        await until_ready(f, 2)
        await f.create("L")
        async with watching(f, "L") as (client, watched):
            await client.push("L", text, boundary=True)
            await watched.until("spoken", lambda each: each["chars"] > 20)
            await client.interrupt("L", "Yes?")
            cut = await watched.until("heard", lambda each: each["seq"] == 1)
            last = await watched.until("spoken", lambda each: each.get("interrupt") == 2)
            await until_said(f, "L", 2)
            assert cut["cut"] and text.startswith(cut["text"]) and cut["text"].split()[-1] in text.split()
            assert last["seq"] == 1 and text[: last["chars"]] == cut["text"]
            # A new process has exactly this in its context.
            serving = (await client.get("L")).worker
            [victim] = [each for each in workers if serving.startswith(each.name)]
            victim.kill()
            await client.push("L", "Go on.", boundary=True)
            await until_said(f, "L", 3)
        [line] = [each["text"] for each in (await f.get("/v1/lives/L/logs"))["lines"] if "context 2" in each["text"]]
        assert str(["You are Anna.", cut["text"], "Yes?"]) in line, watched.emits
