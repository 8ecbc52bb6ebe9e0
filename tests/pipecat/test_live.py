"""A bot on the protocol's model: what the frames of its pipeline do to items, acks and the journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pipecat.frames.frames import EndFrame, InterruptionFrame, LLMMessagesAppendFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.openai.llm import OpenAILLMService

from dhsched import testing
from dhsched.errors import BadSetting, BotEnded, RuntimeFailed
from dhsched.pipecat import Live, runtime_of
from dhsched.pipecat.bots import importable
from dhsched.testing import ScriptedLive
from tests.harness.pipecat_bot import PROMPT, Ether, SlowVoice, spoken
from tests.harness.scripted_llm import scripted_llm

pytestmark = pytest.mark.pipecat
WAIT_S = 60.0


class Stage:
    """A bot whose parts a test can reach."""

    def __init__(self, llm_url: str = "", pushed: Any = "spoken") -> None:
        self.llm_url, self.pushed = llm_url, pushed
        self.lives: list[Live] = []
        self.contexts: list[LLMContext] = []

    async def __call__(self, live: Live) -> None:
        context = await live.context(PROMPT)
        self.lives.append(live)
        self.contexts.append(context)
        user, assistant = LLMContextAggregatorPair(context)
        llm = []
        if self.llm_url:
            settings = OpenAILLMService.Settings(model="scripted")
            llm = [OpenAILLMService(api_key="none", base_url=self.llm_url, settings=settings)]
        await live.run(Pipeline([user, *llm, SlowVoice(), Ether(), live.processor, assistant]), pushed=self.pushed)

    async def queue(self, frame: Any) -> None:
        await self.lives[-1]._worker.queue_frame(frame)


@asynccontextmanager
async def staged(bot: Any) -> AsyncIterator[ScriptedLive]:
    async with testing.live(runtime_of(bot), wait_s=WAIT_S, teardown_s=WAIT_S) as live:
        yield live


def heard(live: ScriptedLive) -> list[dict[str, Any]]:
    return [data for name, data in live.emits if name == "heard"]


def so_far(live: ScriptedLive, seq: int) -> Callable[[], bool]:
    return lambda: any(name == "spoken" and data["seq"] == seq and data["chars"] > 3 for name, data in live.emits)


async def test_an_item_is_acked_when_it_was_spoken_and_its_words_are_in_the_journal() -> None:
    async with staged(spoken) as live:
        await live.push("One two three.", boundary=True)
        await live.push("Four five.", boundary=True)
        await live.acked(2)
        assert live.journal == [
            {"role": "assistant", "content": "One two three."}, {"role": "assistant", "content": "Four five."}
        ]  # fmt: skip
        assert [(each["seq"], each["text"], each["cut"]) for each in heard(live)] == [
            (1, "One two three.", False), (2, "Four five.", False)
        ]  # fmt: skip


async def test_an_interruption_inside_the_pipeline_cuts_the_item_and_the_next_is_spoken() -> None:
    stage = Stage()
    async with staged(stage) as live:
        await live.push(" ".join(["again"] * 100), boundary=True)
        await live.push("And on.", boundary=True)
        await live.until(so_far(live, 1))
        await stage.queue(InterruptionFrame())
        await live.acked(2)
        cut, after = heard(live)
        assert cut["cut"] and cut["text"] == " ".join(["again"] * len(cut["text"].split()))
        assert 0 < len(cut["text"].split()) < 100 and after["text"] == "And on."
        assert [each["content"] for each in live.journal] == [cut["text"], "And on."]


async def test_what_the_user_says_is_stored_without_an_item() -> None:
    async with scripted_llm({"Hello.": "Good morning to you.", "Bye.": "See you soon."}) as llm:
        stage = Stage(llm.url)
        async with staged(stage) as live:
            await live.push("Welcome.", boundary=True)
            await live.acked(1)
            # What a microphone's turn brings into the pipeline.
            asked: Any = [{"role": "user", "content": "Hello."}]
            await stage.queue(LLMMessagesAppendFrame(asked, run_llm=True))
            await live.until(lambda: len(live.journal) == 3)
            assert [each["content"].strip() for each in live.journal] == ["Welcome.", "Hello.", "Good morning to you."]
            assert heard(live)[1] == {"seq": 0, "text": heard(live)[1]["text"], "chars": 20, "cut": False}
            await live.crash()
            await live.push("Still here.", boundary=True)
            await live.acked(2)
            restored = [each["content"].strip() for each in stage.contexts[1].messages]
            assert restored == ["You are Anna.", "Welcome.", "Hello.", "Good morning to you.", "Still here."]


async def test_a_turn_of_several_sentences_is_one_item_and_an_interrupt_cancels_the_request() -> None:
    long = " ".join(f"Sentence number {n}." for n in range(100))
    async with (
        scripted_llm({"Short.": "One. Two. Three.", "Long.": long}, token_s=0.05) as llm,
        staged(Stage(llm.url, "answered")) as live,
    ):
        await live.push("Short.", boundary=True)
        await live.acked(1)
        assert heard(live)[0]["text"].split() == ["One.", "Two.", "Three."]
        await live.push("Long.", boundary=True)
        await live.until(lambda: len(llm.sent) == 2 and llm.sent[1] > 12)
        await live.interrupt()
        await live.acked(3)
        cut = heard(live)[1]
        assert cut["cut"] and cut["seq"] == 2 and long.startswith(cut["text"])
        kept = [each["content"].strip() for each in live.journal[2:]]
        assert kept == ["Long.", *([cut["text"]] if cut["text"] else [])]
        await live.until(lambda: llm.cancelled == [1])
        assert llm.sent[1] < len(long.split())


async def test_a_live_that_moves_in_the_middle_of_an_item_does_not_ack_it() -> None:
    stage = Stage()
    async with staged(stage) as live:
        await live.push(" ".join(["on"] * 60), boundary=True)
        await live.until(so_far(live, 1))
        await live.reassign()
        await live.acked(1)
        assert [each["content"] for each in live.journal] == [" ".join(["on"] * 60)], "spoken again, as a whole"
        assert live.refused_acks == [] and len(stage.lives) == 2


async def test_a_pipeline_without_the_processor_is_refused_in_words() -> None:
    async def forgets(live: Live) -> None:
        await live.run(Pipeline([SlowVoice(), Ether()]))

    with pytest.raises(RuntimeFailed, match="is not in the pipeline"):
        async with staged(forgets) as live:
            await live.push("Hello.")
            await live.acked(1)


async def test_a_pipeline_without_a_context_speaks_and_keeps_nothing() -> None:
    async def parrot(live: Live) -> None:
        await live.run(Pipeline([SlowVoice(), Ether(), live.processor]))

    async with staged(parrot) as live:
        await live.push("Without any context.", boundary=True)
        await live.acked(1)
        assert heard(live)[0]["text"] == "Without any context." and live.journal == []


async def test_a_pipeline_that_ends_by_itself_is_a_failure_of_its_live() -> None:
    async def hangs_up(live: Live) -> None:
        running = asyncio.create_task(live.run(Pipeline([SlowVoice(), Ether(), live.processor])))
        while live.session.generation.epoch == 1 and not live.processor.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if live.session.generation.epoch == 1:
            await live._worker.queue_frame(EndFrame())
        await running

    async with staged(hangs_up) as live:
        assert isinstance(await live.failed(), BotEnded)
        await live.push("Here again.", boundary=True)
        await live.acked(1)


def test_a_bot_that_no_process_can_import_is_refused() -> None:
    async def local(live: Live) -> None: ...

    with pytest.raises(BadSetting, match="process_per_live=False"):
        importable(local)
    assert importable(spoken) == "tests.harness.pipecat_bot:spoken"
