"""The chat app of docs/guides/client.md, as it stands there, with processes: its history is what was really heard."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dhsched.client import Client
from dhsched.store.server.embedded import Embedded
from tests.harness.fleet import until_so
from tests.harness.processes import Process, Processes
from tests.harness.speaker import Speaker, answer, notes_of, really_heard, text_of
from tests.harness.tree import document

TURNS = 100
KILLED, KILLED_AND_INTERRUPTED = 40, 70  # The turns in which the Worker that speaks is killed.
SEED = 11


def app_of_the_page() -> Callable[..., Any]:
    """The function `chat` of the page's section."""
    section = document("docs/guides/client.md").partition("\n## A conversation\n")[2].partition("\n## ")[0]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/guides/client.md", "exec"), names)
    chat: Callable[..., Any] = names["chat"]
    return chat


@dataclass
class User:
    """Asks a question after the other, and mostly does not wait for the end of the answer. Kills the Worker, twice."""

    deployment: Processes
    client: Client
    workers: list[Process]
    random: Random

    def heard(self) -> Speaker:
        return notes_of(line for worker in self.workers for line in worker.lines)

    async def ask(self) -> AsyncIterator[str]:
        for turn in range(TURNS):
            words = self.heard().words
            yield f"question {turn}"
            if turn in (KILLED, KILLED_AND_INTERRUPTED):
                await self._until_words(words + 2, turn)
                await self._kill()
                words = self.heard().words
            if turn == KILLED or self.random.random() < 0.3:
                await self._until_whole(turn)
            else:
                await self._until_words(words + self.random.randint(0, 6), turn)

    async def _until_words(self, words: int, turn: int) -> None:
        """Wait for so many words in all, or for the whole answer if it has fewer."""
        said = await text_of(answer_to(turn))
        await self._until(lambda heard: heard.words >= words or really_heard(heard, turn) == said, f"words of {turn}")

    async def _until_whole(self, turn: int) -> None:
        said = await text_of(answer_to(turn))
        await self._until(lambda heard: really_heard(heard, turn) == said, f"the whole answer {turn}")

    async def _until(self, wanted: Callable[[Speaker], object], what: str) -> None:
        async def ask() -> Speaker:
            return self.heard()

        await until_so(ask, wanted, what)

    async def _kill(self) -> None:
        live = await self.client.get("L")
        name = live.worker.partition("#")[0]
        old = self.deployment.workers[name]
        old.kill()
        await old.ended()
        new = await self.deployment.restart(name)
        assert isinstance(new, Process)
        self.workers.append(new)
        await until_so(lambda: self.client.get("L"), lambda now: now.epoch > live.epoch and now.claimed, "a take-over")


def answer_to(turn: int) -> AsyncIterator[str]:
    return answer(turn, Random(SEED * 1_000 + turn))


def model(history: list[dict[str, str]]) -> AsyncIterator[str]:
    return answer_to(int(history[-1]["content"].split()[-1]))


@pytest.mark.release
async def test_a_hundred_turns_with_interrupts_and_a_killed_worker(tmp_path: Path) -> None:
    async with Embedded() as server, Processes(server.address.url(), folder=tmp_path) as deployment:
        await deployment.dispatch("d1")
        await deployment.dispatch("d2")
        await deployment.infer("c1")
        await deployment.configure({"anna": ["gpu"]})
        workers = [await deployment.worker(name, "--runtime", "tests.harness.speaker:speak") for name in ("w1", "w2")]
        await deployment.until_workers(2)
        async with deployment.client() as client:
            await client.create("anna", live_id="L", wait_s=30)
            user = User(deployment, client, workers, Random(SEED))
            async with asyncio.timeout(300):
                history = await app_of_the_page()(client, "L", user.ask(), model)
            epochs = (await client.get("L")).epoch
        truth = user.heard()
    assert epochs == 3, "it was killed twice, and moved for no other reason"
    answers: list[str] = []
    for message in history:
        if message["role"] == "user":
            answers.append("")
        else:
            answers[-1] = message["content"]
    assert len(answers) == TURNS
    for turn, told in enumerate(answers):
        assert told == really_heard(truth, turn), f"turn {turn}"
        assert (await text_of(answer_to(turn))).startswith(told)
    whole = [turn for turn, told in enumerate(answers) if told == await text_of(answer_to(turn))]
    assert KILLED in whole and 20 < len(whole) < 90, "some were heard to their end, others were cut"
