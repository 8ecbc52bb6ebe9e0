"""A journal, and a large state, through all processes: from one generation to the next, over connections that break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dhsched.worker import Session
from dhsched.worker.journal import BYTES_MAX, ENTRY_BYTES_MAX
from dhsched.worker.session import STATE_BYTES_MAX
from tests.harness.acked import until_acked
from tests.harness.fleet import fleet, until


class Diary:
    """A runtime that writes down each item; `crash` makes it die before its ack, `fill` makes entries large."""

    def __init__(self) -> None:
        self.read: list[tuple[int, list[Any], int]] = []

    async def __call__(self, session: Session) -> None:
        journal = await session.journal()
        self.read.append((session.generation.epoch, journal.values(), len(session.state)))
        async for item in session.inputs():
            if item.text == "fill":
                while journal.size + ENTRY_BYTES_MAX <= BYTES_MAX:
                    journal.append(b"x" * ENTRY_BYTES_MAX)
                session.state = b"s" * STATE_BYTES_MAX
            elif item.text == "short":
                journal.replace([f"{len(journal)} entries"])
            else:
                journal.append(item.text)
            if item.text == f"crash in {session.generation.epoch}":
                raise RuntimeError("as it was told to")


async def test_a_journal_goes_from_generation_to_generation(tmp_path: Path) -> None:
    diary = Diary()
    async with fleet(tmp_path) as f:
        await f.start_dispatch(with_loops=True)
        await f.start_worker(diary, "a")
        await f.start_worker(diary, "b")
        body = {"live_id": "L", "digital_id": "demo"}
        assert (await f.post(f"{f.dispatch[0]}/v1/lives?wait_s=10", body))[0] == 201
        for n, text in enumerate(["one", "two", "crash in 1"], 1):
            await f.push("L", text)
            await until_acked(f, "L", n)
        assert [(epoch, values) for epoch, values, _ in diary.read] == [(1, []), (2, ["one", "two"])]

        await f.push("L", "fill")
        await until_acked(f, "L", 4)
        assert (await f.reassign("L"))[0] == 200
        await until(lambda: len(diary.read) == 3, "the next generation")
        epoch, values, state = diary.read[2]
        full = (BYTES_MAX - len("onetwocrash in 1") - 3 * len(b'\0j""')) // ENTRY_BYTES_MAX
        assert (epoch, values[:3], len(values), state) == (3, ["one", "two", "crash in 1"], 3 + full, STATE_BYTES_MAX)

        await f.push("L", "short")
        await f.push("L", "three")
        await until_acked(f, "L", 6)
        assert (await f.reassign("L"))[0] == 200
        await until(lambda: len(diary.read) == 4, "the next generation")
        assert diary.read[3][1] == [f"{3 + full} entries", "three"]


async def test_entries_are_written_once_when_their_controller_stops(tmp_path: Path) -> None:
    diary = Diary()
    lives = [f"L{n}" for n in range(6)]
    async with fleet(tmp_path) as f:
        stop = await f.start_infer()
        await f.start_worker(diary, "a", capacity=6)
        await f.start_worker(diary, "b", capacity=6)
        for live in lives:
            body = {"live_id": live, "digital_id": "demo"}
            assert (await f.post(f"{f.dispatch[0]}/v1/lives?wait_s=10", body))[0] == 201
        for n in range(6):
            if n == 3:
                stop.set()
            for live in lives:
                assert (await f.push(live, f"{n}"))[0] == 200
        for live in lives:
            await until_acked(f, live, 6)
            assert (await f.reassign(live))[0] == 200
        await until(lambda: len(diary.read) == 12, "the next generations")
        assert [values for epoch, values, _ in diary.read if epoch == 2] == [[f"{n}" for n in range(6)]] * 6


async def test_a_journal_may_be_asked_for_in_the_middle_of_the_input(tmp_path: Path) -> None:
    seen: list[list[Any]] = []

    async def notes(session: Session) -> None:
        async for item in session.inputs():
            journal = await session.journal()
            journal.append(item.text)
            seen.append(journal.values())

    async with fleet(tmp_path) as f:
        await f.start_worker(notes, "a")
        await f.start_worker(notes, "b")
        await f.create("L")
        for text in ("one", "two", "three"):
            await f.push("L", text)
        await until_acked(f, "L", 3)
        assert (await f.reassign("L"))[0] == 200
        await f.push("L", "four")
        await until_acked(f, "L", 4)
    assert seen == [["one", "two", "three", "four"][:count] for count in (1, 2, 3, 4)]


class Ears:
    """A runtime that writes what it hears by itself, without input; `note` makes it do so."""

    def __init__(self) -> None:
        self.read: list[list[Any]] = []
        self.session: Session | None = None

    async def __call__(self, session: Session) -> None:
        self.read.append((await session.journal()).values())
        self.session = session
        async for item in session.inputs():
            (await session.journal()).append(item.text)

    async def note(self, text: str) -> None:
        assert self.session is not None
        (await self.session.journal()).append(text)
        self.session.save_journal()


async def test_what_was_no_input_is_stored_without_an_ack_also_when_the_controller_stops(tmp_path: Path) -> None:
    ears = Ears()
    async with fleet(tmp_path, infer=0) as f:
        await f.start_dispatch(with_loops=True)
        stop = await f.start_infer()
        await f.start_worker(ears, "a")
        await f.start_worker(ears, "b")
        await f.create("L")
        await until(lambda: ears.session is not None, "the runtime")
        await ears.note("before any item")
        stop.set()
        await ears.note("on a connection that ends")
        f.infer.clear()
        await f.start_infer()
        await f.push("L", "one")
        await until_acked(f, "L", 1)
        await ears.note("after an ack")
        await f.push("L", "two")
        await until_acked(f, "L", 2)
        assert (await f.reassign("L"))[0] == 200
        await until(lambda: len(ears.read) == 2, "the next generation")
        assert ears.read[1] == ["before any item", "on a connection that ends", "one", "after an ack", "two"]
