"""Every example runs. `examples/test_echo.py` is an example of a test, and is collected as one."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer

from dhsched import testing
from dhsched.avatar.sentences import PIECE_CHARS_MAX
from dhsched.worker import Exec
from examples import batching, continuous_batching, llm_voice, video_generator
from examples.aiohttp_app import make_app
from tests.harness.acked import until_acked
from tests.harness.fleet import Fleet, ended, fleet, until
from tests.harness.processes import processes
from tests.harness.scripted_llm import scripted_llm
from tests.harness.theatre import Watcher, theatre
from tests.harness.tree import ROOT

EXAMPLES = ROOT / "examples"
WAIT_S = 30.0


def environment(f: Fleet, name: str) -> dict[str, str]:
    """What a program that runs a Worker of this deployment reads."""
    return {
        "DHSCHED_URL": ",".join(f.dispatch),
        "DHSCHED_WORKER_LOCK_FOLDER": str(f.folder),
        "DHSCHED_WORKER_NAME": name,
        "DHSCHED_WORKER_DRAIN_S": "0",
    }


def test_every_example_is_listed_and_run_here() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    here = Path(__file__).read_text() + Path(__file__).with_name("test_speak.py").read_text()
    for path in sorted(EXAMPLES.rglob("*.*")):
        name = path.relative_to(EXAMPLES).as_posix()
        if path.suffix in (".py", ".mjs") and "__pycache__" not in path.parts:
            assert f"({name})" in listed, f"examples/README.md lacks {name}"
            assert path.stem in here, f"nothing runs {name}"


async def test_llm_voice_remembers_the_talk_over_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"Hi.": "Hello there. Come in!", "And you?": "I am well.", "Stop.": "Yes."}
    async with scripted_llm(answers) as llm:
        monkeypatch.setenv("LLM_URL", llm.url)
        async with testing.live(llm_voice.voice, config={"prompt": "Be Anna."}, wait_s=60) as live:
            await live.push("Hi.")
            await live.acked(1)
            assert heard(live) == ["Hello there.", "Come in!"], "sentence by sentence"
            await live.crash()
            await live.push("And you?")
            await live.acked(2)
            await live.interrupt("Stop.")
            await live.acked(3)
            assert [each["content"] for each in live.journal[-2:]] == ["Stop.", "Yes."]
    system, *talk = llm.asked[1]
    assert system == {"role": "system", "content": "Be Anna."}
    assert [message["content"] for message in talk] == ["Hi.", "Hello there. Come in!", "And you?"]


def heard(live: testing.ScriptedLive) -> list[str]:
    return [data["text"] for name, data in live.emits if name == "heard"]


async def test_llm_voice_keeps_what_was_heard_at_an_interrupt_and_cancels_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that batches requests must not generate what nobody hears."""
    long = " ".join(f"This is sentence {n}." for n in range(10_000))
    async with scripted_llm({"Long.": long, "Short.": "Yes."}, token_s=0.01) as llm:
        monkeypatch.setenv("LLM_URL", llm.url)
        async with testing.live(llm_voice.voice, wait_s=60) as live:
            await live.push("Long.")
            await live.until(lambda: heard(live))
            assert live.last_acked == 0, "it is not acked before it was heard"
            await live.interrupt()
            await live.acked(2)
            await live.until(lambda: llm.cancelled == [0])
            await live.push("Short.")
            await live.acked(3)
            question, cut, *after = [each["content"] for each in live.journal]
            assert question == "Long." and after == ["Short.", "Yes."]
            assert long.startswith(cut) and cut.startswith("This is sentence 0.") and llm.sent[0] < len(long.split())
            assert cut == " ".join(filter(None, heard(live)[:-1]))


async def test_llm_voice_speaks_what_has_no_end_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tokens(text: str) -> AsyncIterator[str]:
        for word in text.split():
            yield word + " "

    made = [each async for each in llm_voice.sentences(tokens("on and " * 300 + "out. Now. And"))]
    assert " ".join(made).split() == ("on and " * 300 + "out. Now. And").split() and made[-2:] == ["Now.", "And"]
    assert max(map(len, made)) <= PIECE_CHARS_MAX
    monkeypatch.setattr(llm_voice, "MESSAGES_MAX", 4)
    async with scripted_llm({str(n): f"{n}." for n in range(4)}) as llm:
        monkeypatch.setenv("LLM_URL", llm.url)
        async with testing.live(llm_voice.voice, wait_s=60) as live:
            for n in range(4):
                await live.push(str(n))
            await live.acked(4)
            assert [each["content"] for each in live.journal] == ["1", "1.", "2", "2.", "3", "3."][-4:]


async def test_llm_voice_is_heard_in_the_room(tmp_path: Path) -> None:
    answers = {"Who are you?": "I am Anna, and I guide people through this house."}
    async with scripted_llm(answers) as llm, theatre(tmp_path) as at, processes(at.fleet) as p:
        how = environment(at.fleet, "voice") | {"LLM_URL": llm.url}
        await p.start("voice", module="examples.llm_voice", environment=how)
        await p.workers_ready(1)
        await at.fleet.create("demo")
        watcher = Watcher()
        await watcher.connect(at)
        await until(lambda: len(watcher.seen["video"]) > 2, "a picture")
        assert watcher.loud == 0
        await at.fleet.push("demo", "Who are you?")
        await until_acked(at.fleet, "demo", 1)
        await until(lambda: watcher.loud > 10, "the voice")
        await watcher.close()


async def test_batching_answers_many_lives_with_few_calls() -> None:
    batcher = await batching.load()
    async with AsyncExitStack() as stack:
        lives = [
            await stack.enter_async_context(testing.live(batching.speaks, shared=batcher, wait_s=WAIT_S))
            for _ in range(6)
        ]
        await asyncio.gather(*(live.push(f"prompt {number}") for number, live in enumerate(lives)))
        await asyncio.gather(*(live.acked(1) for live in lives))
    assert sum(batcher.model.batches) == 6 and max(batcher.model.batches) > 1


class GatedModel(continuous_batching.FakeModel):
    """A model that makes a step when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_step = threading.Semaphore(0)

    def step(self, states: list[dict[str, float]], sounds: list[continuous_batching.Sound]) -> Any:
        assert self.may_step.acquire(timeout=60)
        return super().step(states, sounds)


def sound_of(chunks: float) -> continuous_batching.Sound:
    frames = round(chunks * continuous_batching.CHUNK_FRAMES)
    return np.full(frames * continuous_batching.SAMPLES_PER_FRAME, 8_000, np.int16)


async def test_continuous_batching_lets_a_live_join_and_leave_between_steps() -> None:
    model, end = GatedModel(), continuous_batching.SegmentEnd()
    engine = continuous_batching.Engine(model)
    long, short = engine.open(), engine.open()
    await long.push_audio(sound_of(5))
    await until(lambda: len(long.waiting) == 4, "the first step to begin")
    await short.push_audio(sound_of(0.5))
    await short.push_audio(end)
    model.may_step.release()
    model.may_step.release()
    made = [frame async for frame in first(short, continuous_batching.CHUNK_FRAMES + 1)]
    assert made[-1] is end and not any(frame is end for frame in made[:-1])
    assert model.batches == [1, 2] and len(long.waiting) == 2, "its sentence is over, and that of the other goes on"

    # An interrupt drops what waits, what is made, and what the model is making now.
    long.clear_buffer()
    model.may_step.release()
    await until(lambda: len(model.batches) == 3, "the step that was being made")
    await long.push_audio(sound_of(1))
    model.may_step.release()
    await until(lambda: long.made, "the next sentence")
    assert len(long.made) == continuous_batching.CHUNK_FRAMES and model.batches == [1, 2, 1, 1]

    # A live does not run ahead without bound, and more lives than a batch holds take turns.
    pushing = asyncio.create_task(long.push_audio(sound_of(100)))
    others = [engine.open() for _ in range(continuous_batching.BATCH_MAX + 1)]
    for other in others:
        await other.push_audio(sound_of(1))
    model.may_step.release(1_000)
    await until(lambda: all(other.made for other in others), "a chunk for each")
    await until(lambda: long.ahead == continuous_batching.CHUNKS_AHEAD_MAX and not long.waiting, "as far as it may be")
    assert max(model.batches) == continuous_batching.BATCH_MAX and not pushing.done()
    for stream in (long, short, *others):
        stream.close()
    await ended(pushing)


async def first(stream: continuous_batching.Stream, count: int) -> AsyncIterator[Any]:
    async for made in stream:
        yield made
        count -= 1
        if not count:
            return


async def test_video_generator_talks_is_interrupted_and_goes_on_after_a_crash() -> None:
    engine = await continuous_batching.load()
    async with testing.live(video_generator.talks, shared=engine, wait_s=60) as live:
        await live.push("Hello there.")
        await live.acked(1)
        assert live.saved_state == {"said": 1}
        await live.push("a long sentence " * 20)
        await live.until(lambda: len(engine.model.batches) > 5)  # type: ignore[attr-defined]
        await live.interrupt()
        await live.acked(3)
        await live.crash()
        await live.push("Again.")
        await live.acked(4)
        assert live.saved_state["said"] >= 2
    assert engine._streams == {}, "a live that ended has nothing at the model"

    def out_of_memory(states: Any, sounds: Any) -> Any:
        raise MemoryError("the device has no memory left")

    engine.model.step = out_of_memory  # type: ignore[method-assign]
    async with testing.live(video_generator.talks, shared=engine, wait_s=60) as live:
        await live.push("Hello there.")
        failed = await live.failed()
        assert isinstance(failed, ExceptionGroup) and failed.subgroup(MemoryError), "so the live goes on elsewhere"


async def test_video_generator_publishes_to_the_room(tmp_path: Path) -> None:
    async with theatre(tmp_path) as at, processes(at.fleet) as p:
        await p.start("avatar", module="examples.video_generator", environment=environment(at.fleet, "avatar"))
        await p.workers_ready(1)
        await at.fleet.create("demo")
        watcher = Watcher()
        await watcher.connect(at)
        await at.fleet.push("demo", "Good morning.")
        await until(lambda: len(watcher.seen["video"]) > 20 and len(watcher.seen["audio"]) > 20, "pictures and sound")
        await until_acked(at.fleet, "demo", 1)
        assert watcher.seen["video"] == sorted(watcher.seen["video"])
        await watcher.close()


@pytest.mark.skipif(shutil.which("node") is None, reason="NOT TESTED: node is not installed")
async def test_node_runtime_counts_over_a_crash() -> None:
    async with testing.live(Exec(f"node {EXAMPLES / 'node' / 'runtime.mjs'}"), wait_s=60, teardown_s=60) as live:
        await live.push("one")
        await live.acked(1)
        await live.crash()
        await live.push("two")
        await live.acked(2)
        assert live.saved_state == {"count": 2}


async def test_aiohttp_app_serves_pages_and_lives(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        app = make_app(
            pool="gpu", capacity=2, name="app", dispatch=f.dispatch, lock_folder=tmp_path / "locks", drain_s=0.0
        )
        async with TestClient(TestServer(app)) as client:
            await f.create("a")
            await f.push("a", "hello")
            await until_acked(f, "a", 1)
            assert await (await client.get("/spoken")).json() == ["hello"]


@pytest.mark.parametrize("program", ["echo", "batching"])
async def test_programs_run_as_they_are(tmp_path: Path, program: str) -> None:
    lines: list[bytes] = []
    async with fleet(tmp_path) as f, processes(f) as p:
        how: Any = {"environment": environment(f, program), "hear": lines.append}
        await p.start(program, module=f"examples.{program}", **how)
        await p.workers_ready(1)
        await f.create("a")
        await f.push("a", "hello")
        await until_acked(f, "a", 1)
    assert b"hello" in b"".join(lines).lower()
