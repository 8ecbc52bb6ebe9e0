"""`process_per_live`: a Python runtime in a process of its own has the same session, and its crash is its live's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dhsched import testing
from dhsched.errors import BadSetting, ChildFailed
from dhsched.local.pids import alive
from dhsched.testing import ScriptedLive
from dhsched.worker import Publish
from dhsched.worker.child_session import PythonChildSession, command_of
from dhsched.worker.exec import child_runtime
from dhsched.worker.inbox import SessionInbox
from tests.harness.acked import until_acked
from tests.harness.child_runtimes import load, never_asks, tells
from tests.harness.fleet import fleet
from tests.harness.processes import processes

WAIT_S = 60.0


@asynccontextmanager
async def live(runtime: Any = tells, close_s: float = WAIT_S, **how: Any) -> AsyncIterator[ScriptedLive]:
    with child_runtime(command_of(runtime, load), kind=PythonChildSession, close_s=close_s) as run:
        async with testing.live(run, wait_s=WAIT_S, teardown_s=WAIT_S, **how) as made:
            yield made


async def test_the_session_is_the_same_in_another_process() -> None:
    publish = Publish("http://room", "token")
    async with live(config={"voice": "anna"}, state=b"old", device="gpu1", publish=publish) as made:
        await made.push("one")
        await made.acked(1)
        first = made.saved_state
        assert first["shared"] == "model" and first["device"] == "gpu1" and first["publish"] == "http://room"
        assert first["before"] == "old", "it was given bytes"
        assert first["config"] == {"voice": "anna"} and first["live"] == "test/live"
        await made.configure({"voice": "ben"})
        await made.push("extend")
        await made.acked(3)
        assert made.saved_state["config"] == {"voice": "ben"} and made.late_s == 0.75
        # A later pull brings another token, and perhaps another room.
        made.session.publish = Publish("http://other", "token-2")
        await made.push("one")
        await made.acked(4)
        assert made.saved_state["publish"] == "http://other"
        assert SessionInbox(made.session).busy(asyncio.get_running_loop().time() + 200)
        await made.push("bytes")
        await made.acked(5)
        assert made.saved_state == b"\xff\x00"
        await made.push("words")
        await made.acked(6)
        assert made.saved_state == "words", "text stays text, as in the Worker's own process"
        assert alive(first["pid"])
    assert not alive(first["pid"])


async def test_an_interrupt_reaches_a_busy_runtime_at_once_and_once() -> None:
    async with live(state={}) as made:
        await made.push("wait")
        await made.push("dropped")
        await made.until(lambda: SessionInbox(made.session).accepted[0] == 2)
        await made.interrupt()
        await made.acked(3)
        assert made.saved_state["now"] == "interrupt" and made.saved_state["calls"] == 1
        assert made.emits == [("spoken", {"seq": 0, "chars": 0, "interrupt": 3})], "the interrupt's own number"


async def test_a_prepared_process_goes_on_from_what_was_saved_since() -> None:
    async with live(state={}) as made:
        prepared = await made.prepare()
        await made.push("one", boundary=True)
        await made.acked(1)
        pid = made.saved_state["pid"]
        assert not prepared.claimed.is_set()
        await made.move()
        await made.push("two")
        await made.acked(2)
        assert made.saved_state["now"] == "two" and made.saved_state["pid"] != pid
        await made.until(lambda: not alive(pid), "the end of the process that was moved away from")


@pytest.mark.release
async def test_nothing_is_claimed_before_the_runtime_asks_for_input() -> None:
    with (
        child_runtime(command_of(never_asks, None), kind=PythonChildSession, close_s=0.1) as run,
        pytest.raises(TimeoutError, match="the runtime must ask for input"),
    ):
        async with testing.live(run, wait_s=3, teardown_s=WAIT_S):
            pass


@pytest.mark.release
@pytest.mark.parametrize(
    ("word", "reason"), [("raise", "ValueError: as told (child_runtimes.py"), ("die", "was killed by SIGKILL")]
)
async def test_a_process_that_fails_says_why(word: str, reason: str) -> None:
    async with live(state={}) as made:
        await made.push(word)
        failure = await made.failed()
        assert isinstance(failure, ChildFailed) and reason in str(failure)
        await made.interrupt()
        await made.acked()


@pytest.mark.release
async def test_a_process_that_blocks_is_killed_when_its_live_ends() -> None:
    async with live(state={}, close_s=0.2) as made:
        await made.push("one")
        await made.acked(1)
        await made.push("block")
        await made.until(lambda: SessionInbox(made.session).accepted[0] == 2)
    assert not alive(made.acks[0][1]["pid"])


async def test_a_worker_with_a_process_per_live(tmp_path: Path) -> None:
    module = "tests.harness.child_runtimes"
    async with fleet(tmp_path) as f, processes(f) as p:
        await p.worker("w", "--runtime", f"{module}:tells", "--setup", f"{module}:load", "--process-per-live")
        await p.workers_ready(1)
        for name in ("a", "b"):
            await f.create(name)
        await f.push("a", "block")  # It stops nobody else.
        await f.push("b", "one")
        await until_acked(f, "b", 1)


def test_a_runtime_that_cannot_be_imported_is_refused() -> None:
    async def inside(session: Any) -> None: ...

    with pytest.raises(BadSetting, match="process_per_live needs a runtime that another process can import"):
        command_of(inside, None)
