"""The writer of a log: what the store does not take is dropped and said, except for what nobody else can say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dhsched.errors import StoreUnavailable
from dhsched.store.records import writer as module
from dhsched.store.records.writer import Writer


class Log:
    """A log that refuses the first calls, as many as `fails`."""

    def __init__(self, fails: int) -> None:
        self.fails = fails
        self.calls: list[list[str]] = []
        self.dropped: list[str] = []
        self.called = asyncio.Event()
        self.writer = Writer[str]("event", self.write, lambda entry, _reason: self.dropped.append(entry))

    def write(self, entries: Sequence[str], /, *, deadline_s: float) -> asyncio.Future[Any]:
        self.calls.append([*entries])
        self.called.set()
        done = asyncio.get_running_loop().create_future()
        if len(self.calls) <= self.fails:
            done.set_exception(StoreUnavailable("gone", unknown=False))
        else:
            done.set_result(1)
        return done

    async def until_calls(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.calls) < count:
                self.called.clear()
                await self.called.wait()
        await self.writer.written()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)


async def test_what_cannot_be_written_is_dropped_and_what_came_later_is_written() -> None:
    log = Log(fails=1)
    log.writer.write("a")
    log.writer.write("b")
    await log.until_calls(2)
    assert log.calls == [["a"], ["b"]] and log.dropped == ["a"]


async def test_what_nobody_else_can_say_is_written_again_until_the_store_has_it() -> None:
    log = Log(fails=3)
    log.writer.write("lost", insist=True)
    log.writer.write("a")
    await log.until_calls(4)
    assert log.calls == [["lost"], ["lost", "a"], ["lost"], ["lost"]] and log.dropped == ["a"]
    log.writer.write("b")
    await log.until_calls(5)
    assert log.calls[4] == ["b"], "and not once more"
