"""A conversation: answers are spoken, interrupted, and the history has exactly what was heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from dhsched.client import Client, Heard
from dhsched.ownership.limits import Limits
from examples.chat import chat
from tests.harness.clients import client_of
from tests.harness.fleet import Fleet, fleet, until
from tests.harness.speaker import WORD_S, Speaker, answer, really_heard, text_of


async def test_an_answer_is_heard_to_its_end(tmp_path: Path) -> None:
    speaker = Speaker()
    async with fleet(tmp_path) as f:
        await f.start_worker(speaker, "w1")
        await f.create("L")
        async with client_of(f) as client:
            said = await text_of(answer(1, Random(1)))
            heard = await client.speak("L", answer(1, Random(1)))
            assert (heard.text, heard.complete) == (said, True)
            nothing = await client.speak("L", no_tokens())
            assert nothing == Heard("", complete=True)


async def no_tokens() -> AsyncIterator[str]:
    return
    yield ""


async def endless(closed: asyncio.Event) -> AsyncIterator[str]:
    try:
        n = 0
        while True:
            n += 1
            yield f"word{n}. "
            await asyncio.sleep(WORD_S)
    finally:
        closed.set()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_interrupt_ends_an_endless_answer(tmp_path: Path, elsewhere: bool) -> None:
    """Its own, or one of a viewer, seen in the events. The model is asked for no more tokens."""
    speaker, closed = Speaker(), asyncio.Event()
    async with fleet(tmp_path) as f:
        await f.start_worker(speaker, "w1")
        await f.create("L")
        async with client_of(f) as client:
            turn = client.speak("L", endless(closed))
            await until(lambda: speaker.words > 20, "some words")
            if elsewhere:
                await f.push("L", "", kind="interrupt")
                heard = await turn
            else:
                heard = await turn.interrupt()
            assert closed.is_set() and not heard.complete
            whole = "".join(speaker.whole[seq] for seq in heard.items)
            first = min(speaker.cuts)
            assert heard.text == whole + (speaker.cuts[first][1] if speaker.cuts[first][0] not in heard.items else "")
            again = await client.speak("L", answer(2, Random(2)))
            assert again.complete


async def test_the_end_of_the_live_ends_the_turn(tmp_path: Path) -> None:
    speaker, closed = Speaker(), asyncio.Event()
    async with fleet(tmp_path) as f:
        await f.start_worker(speaker, "w1")
        await f.create("L")
        async with client_of(f) as client:
            turn = client.speak("L", endless(closed))
            await until(lambda: speaker.words > 5, "some words")
            await client.end("L")
            heard = await turn
            assert closed.is_set() and not heard.complete
            assert all(seq in speaker.whole for seq in heard.items)


@pytest.mark.release
async def test_a_hundred_turns_with_interrupts_and_the_death_of_a_worker(tmp_path: Path) -> None:
    speaker, r = Speaker(), Random(7)
    limits = Limits(ack_wait_ms=2_000, claim_wait_ms=2_000, lease_ms=200)
    async with fleet(tmp_path, with_loops=True, infer=2, limits=limits) as f:
        workers = [await f.start_worker(speaker, name) for name in ("w1", "w2")]
        await f.create("L")
        async with client_of(f, deadline_s=60) as client:
            for turn in range(100):
                await one_turn(client, f, speaker, turn, r)
                if turn == 50:
                    at = (await f.get("/v1/lives/L"))["worker"]
                    speaking = client.speak("L", answer(999, Random(999)))
                    await workers[0 if at.startswith("w1") else 1].kill()
                    heard = await speaking
                    assert heard.complete and heard.text == await text_of(answer(999, Random(999)))
        store = f.controllers[0].context.store
        producers = await store.link.call("HKEYS", store.keys.of("live", "default/L"))
        assert sum(key.startswith(b"from:") for key in producers) == 1, "one name for all turns"


async def one_turn(client: Client, f: Fleet, speaker: Speaker, turn: int, r: Random) -> None:
    seed = r.randrange(10**6)
    said = await text_of(answer(turn, Random(seed)))
    speaking = client.speak("L", answer(turn, Random(seed)))
    how, until_word = r.choice(["listen", "own", "own", "viewer"]), speaker.words + r.randint(0, 8)
    if how != "listen":
        await until(lambda: speaker.words >= until_word or speaking._task.done(), "some words")
    if how == "viewer":
        _, pushed = await f.push("L", "", kind="interrupt")
        await until(lambda: max(speaker.cuts, default=0) >= pushed["seq"], "the end of the voice")
    heard = await (speaking.interrupt() if how == "own" else speaking)
    assert said.startswith(heard.text) and heard.complete == (heard.text == said)
    assert heard.text == really_heard(speaker, turn), (turn, how)
    assert heard.complete or how != "listen"


async def test_the_chat_app_of_the_examples(tmp_path: Path) -> None:
    speaker = Speaker()

    async def questions() -> AsyncIterator[str]:
        yield "hello"
        await until(lambda: speaker.words > 3, "the first words of the answer")
        yield "what?"

    async with fleet(tmp_path) as f:
        await f.start_worker(speaker, "w1")
        await f.create("L")
        async with client_of(f) as client:
            history = await chat(client, "L", questions())
        assert [each["role"] for each in history] == ["user", "assistant", "user", "assistant"]
        assert history[1]["content"].startswith("You said: hello. ") and history[3]["content"].endswith("about? ")
