"""dhsched.testing: a runtime under scripted input, interrupts, crashes and moves, with the fence of the protocol."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dhsched import testing
from dhsched.errors import BadValue, RuntimeFailed
from dhsched.worker import Exec, Item, Session
from dhsched.worker.runtimes import null


class Counter:
    """A runtime that counts what it is given, and keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []
        self.opened: list[object] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.stopped = 0

    async def __call__(self, session: Session) -> None:
        self.opened.append(session.state)
        async for item in session.inputs():
            self.seen.append((session.generation.epoch, item.text or item.kind))
            await self.gate.wait()
            session.state = {"count": (session.state or {}).get("count", 0) + 1}
        self.stopped += 1


async def test_items_are_acked_with_the_state_of_that_moment() -> None:
    counter = Counter()
    async with testing.live(counter, config={"voice": "anna"}, state={"count": 7}, digital_id="anna") as live:
        assert live.session.config == {"voice": "anna"} and live.session.digital_id == "anna"
        assert await live.push("one") == 1
        await live.push("two")
        await live.acked()
        assert live.last_acked == 2 and live.saved_state == {"count": 9}
        await live.configure({"voice": "ben"})
        await live.acked(3)
        assert live.config == live.session.config == {"voice": "ben"}
    assert counter.opened == [{"count": 7}] and counter.stopped == 1 and live.ended


async def test_an_interrupt_drops_what_waits() -> None:
    counter = Counter()
    counter.gate.clear()
    async with testing.live(counter) as live:
        for text in ("one", "two", "three"):
            await live.push(text)
        await live.interrupt()
        assert live.session.interrupted.is_set()
        counter.gate.set()
        await live.acked(4)
    assert [what for _, what in counter.seen] == ["one", "interrupt"]


async def test_after_a_crash_the_next_generation_gets_the_item_again_with_the_state_before_it() -> None:
    counter = Counter()
    async with testing.live(counter) as live:
        await live.push("one")
        await live.acked(1)
        counter.gate.clear()
        await live.push("two")
        await live.until(lambda: len(counter.seen) == 2)
        await live.crash()
        assert counter.opened == [{}, {"count": 1}] and counter.stopped == 0
        counter.gate.set()
        await live.acked(2)
        assert live.saved_state == {"count": 2}
    first, second = [each.generation.epoch for each in live.sessions]
    assert counter.seen == [(first, "one"), (first, "two"), (second, "two")]


async def test_a_session_that_was_left_behind_gets_nothing_and_its_acks_are_refused() -> None:
    kept: list[Item] = []

    async def keeps(session: Session) -> None:
        async for item in session.inputs(auto_ack=False):
            kept.append(item)

    async with testing.live(keeps) as live:
        await live.push("one")
        await live.until(lambda: kept)
        old = await live.cut_off()
        await live.push("two")
        await live.until(lambda: len(kept) == 2)
        old.ack(kept[0])
        assert live.last_acked == 0 and live.refused_acks[0].generation == old.generation
        live.session.ack(kept[1])
        assert live.last_acked == 1 and not old.stopping.is_set()
        await live.until(lambda: len(kept) == 3)
        assert [item.text for item in kept] == ["one", "one", "two"], "only the new session was given more"


async def test_a_planned_move_prepares_and_waits_for_a_boundary() -> None:
    counter = Counter()
    async with testing.live(counter) as live:
        counter.gate.clear()
        await live.push("half a ")
        prepared = await live.prepare()
        assert not prepared.claimed.is_set() and live.session is not prepared
        moving = asyncio.create_task(live.move())
        counter.gate.set()
        await live.push("sentence.", boundary=True)
        await moving
        assert live.session is prepared and prepared.claimed.is_set()
        await live.push("more")
        await live.acked()
        assert live.saved_state == {"count": 3} and live.refused_acks == []
        await live.until(lambda: counter.stopped == 1, "the end of the runtime that was moved away from")
    assert [what for _, what in counter.seen] == ["half a ", "sentence.", "more"], "each item was given once"


async def test_a_reassign_cuts_an_item_and_the_next_generation_repeats_it() -> None:
    counter = Counter()
    async with testing.live(counter) as live:
        counter.gate.clear()
        await live.push("one")
        await live.until(lambda: counter.seen)
        old = live.session
        await live.reassign()
        assert old.stopping.is_set() and live.session is not old
        counter.gate.set()
        await live.acked(1)
        assert [each.generation for each in live.refused_acks] == [old.generation]
        assert live.saved_state == {"count": 1}


async def test_a_runtime_that_ends_by_itself_fails_the_test() -> None:
    async def fails(session: Session) -> None:
        async for item in session.inputs():
            if item.text == "stop":
                return
            raise ValueError(item.text)

    with pytest.raises(RuntimeFailed, match=r"raised ValueError\('bad'\)") as found:
        async with testing.live(fails) as live:
            await live.push("bad")
            await live.acked(1)
    assert isinstance(found.value.__cause__, ValueError)
    with pytest.raises(RuntimeFailed, match="returned although its live goes on"):
        async with testing.live(fails) as live:
            await live.push("stop")
            await live.until(lambda: False, "its end")


async def test_an_item_that_ends_three_generations_becomes_a_dead_letter() -> None:
    async def fails(session: Session) -> None:
        async for item in session.inputs():
            if item.text == "poison":
                raise ValueError("poison")

    async with testing.live(fails) as live:
        await live.push("poison")
        await live.push("good")
        for _ in range(3):
            assert isinstance(await live.failed(), ValueError)
        await live.acked()
        assert [item.text for item in live.dead_letters] == ["poison"]


async def test_a_runtime_that_does_not_stop_fails_the_test() -> None:
    async def stays(session: Session) -> None:
        async for _ in session.inputs():
            pass
        await asyncio.Event().wait()

    with pytest.raises(RuntimeFailed, match=r"not stopped 0\.05 s after"):
        async with testing.live(stays, teardown_s=0.05):
            pass


async def test_a_wait_that_takes_too_long_says_where_the_live_stands() -> None:
    async def takes_no_more(session: Session) -> None:
        async for _ in session.inputs(auto_ack=False):
            pass

    with pytest.raises(TimeoutError, match="an ack of item 1: 1 items pushed, 1 given to the runtime, 0 acked"):
        async with testing.live(takes_no_more) as live:
            await live.push("one")
            live._wait_s = 0.05
            await live.acked()


async def test_an_ended_live_takes_no_input() -> None:
    async with testing.live(null) as live:
        await live.end()
        with pytest.raises(BadValue, match="takes no input"):
            await live.push("late")


async def test_a_command_is_a_runtime_too(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    said = json.loads(line)\n"
        "    if 'input' in said:\n"
        "        print(json.dumps({'ack': said['input']['seq'], 'state': said['input']['text']}), flush=True)\n"
        "    elif 'close' in said:\n"
        "        break\n"
    )
    async with testing.live(Exec(f"{sys.executable} {script}"), wait_s=60, teardown_s=60) as live:
        await live.push("one")
        await live.acked()
        await live.crash()
        await live.push("two")
        await live.acked()
        assert live.saved_state == b"two"


async def test_a_journal_is_stored_with_its_acks() -> None:
    async def diary(session: Session) -> None:
        journal = await session.journal()
        async for item in session.inputs():
            journal.append(f"{item.text} after {len(journal)}")

    async with testing.live(diary) as live:
        await live.push("one")
        await live.acked()
        await live.crash()
        await live.push("two")
        await live.acked()
        await live.move()
        await live.push("three")
        await live.acked()
        assert live.journal == ["one after 0", "two after 1", "three after 2"]


async def test_messages_are_stored_in_order() -> None:
    async def talker(session: Session) -> None:
        async for item in session.inputs():
            session.emit("heard", {"text": item.text})

    async with testing.live(talker) as live:
        await live.push("one")
        await live.acked()
        await live.crash()
        await live.push("two")
        await live.acked()
        assert live.emits == [("heard", {"text": "one"}), ("heard", {"text": "two"})]


async def test_output_that_is_late_is_counted_over_all_generations(tmp_path: Path) -> None:
    async def skips(session: Session) -> None:
        async for _ in session.inputs():
            session.late(0.25)
            session.late(0.5)

    async with testing.live(skips) as live:
        assert live.late_s == 0
        await live.push("one")
        await live.acked()
        await live.crash()
        await live.push("two")
        await live.acked()
        assert live.late_s == 1.5
    script = tmp_path / "child.py"
    script.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    said = json.loads(line)\n"
        "    if 'input' in said:\n"
        "        print(json.dumps({'late': 0.25, 'ack': said['input']['seq']}), flush=True)\n"
        "    elif 'close' in said:\n"
        "        break\n"
    )
    async with testing.live(Exec(f"{sys.executable} {script}"), wait_s=60, teardown_s=60) as live:
        await live.push("one")
        await live.acked()
        assert live.late_s == 0.25


async def test_a_live_may_begin_with_a_journal() -> None:
    async def counts(session: Session) -> None:
        journal = await session.journal()
        async for item in session.inputs():
            journal.append(f"{item.text} after {journal.values()}")

    async with testing.live(counts, journal=["one", {"two": 2}]) as live:
        assert live.journal == ["one", {"two": 2}]
        await live.push("three")
        await live.acked()
        assert live.journal[2:] == ["three after ['one', {'two': 2}]"]
        await live.crash()
        await live.push("four")
        await live.acked()
        assert len(live.journal) == 4


async def test_a_journal_that_is_asked_for_in_the_middle_of_an_item_loses_no_ack() -> None:
    async def notes(session: Session) -> None:
        async for item in session.inputs():
            session.config["seen"] = item.seq
            journal = await session.journal()
            journal.append(item.text)
            session.state = {"entries": len(journal), "seen": session.config.get("seen")}

    async with testing.live(notes, config={"voice": "anna"}) as live:
        for n, text in enumerate(("one", "two", "three"), 1):
            await live.push(text)
            await live.acked(n)
            assert live.saved_state == {"entries": n, "seen": n}
