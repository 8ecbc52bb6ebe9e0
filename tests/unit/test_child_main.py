"""A live's own process, driven by messages of the test in the Worker's place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dhsched.worker import child_main, keeper
from dhsched.worker.child_main import Child, Pipe, run_child
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.runtimes import BUILT_IN, Runtime
from dhsched.worker.session import Publish, Session
from dhsched.worker.setup import Setup
from tests.harness.linking import eventually

OPEN = {
    "live": "default/a",
    "worker": "w#1",
    "epoch": 3,
    "digital_id": "anna",
    "room": "room-1",
    "device": "gpu0",
    "metadata": {"who": "me"},
    "config": {"voice": "old"},
    "state": "saved",
}


class Process:
    """A child without a process: what it says is read from its pipe."""

    def __init__(self) -> None:
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.child = Child(Pipe(writing))
        self._writing = writing
        self.hear("open", OPEN)

    @property
    def session(self) -> Session:
        return self.child.opened.result()

    def hear(self, what: str, fields: Any = None) -> None:
        self.child._hear(what, fields or {})

    def claimed(self, after: int = 4) -> None:
        self.hear("claimed", {"after": after, "config": {"voice": "new"}, "state": "later", "publish": None})

    def input(self, seq: int, kind: str = "text", **more: Any) -> None:
        self.hear("input", {"seq": seq, "kind": kind, "text": f"item {seq}", "boundary": False, **more})

    def said(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in os.read(self._reading, 65_536).splitlines()]
        except BlockingIOError:
            return []

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


@pytest.fixture
async def process() -> Any:
    made = Process()
    yield made
    made.close()


async def test_a_session_has_what_the_worker_opened_it_with(process: Process) -> None:
    session = process.session
    assert (session.live, session.generation.worker, session.generation.epoch) == ("default/a", "w#1", 3)
    assert (session.digital_id, session.room, session.device) == ("anna", "room-1", "gpu0")
    assert session.metadata == {"who": "me"} and session.config == {"voice": "old"} and session.state == "saved"


async def test_asking_for_input_claims_and_acks_go_to_the_worker(process: Process) -> None:
    session = process.session
    asked = asyncio.ensure_future(anext(session.inputs()))
    await asyncio.sleep(0)
    assert process.said() == [{"claim": {}}] and not session.claimed.is_set()
    process.claimed(after=4)
    assert session.claimed.is_set() and session.config == {"voice": "new"} and session.state == "later"
    process.input(5)
    assert (await asked).text == "item 5"
    session.ack()
    session.state = b"\x00bytes"
    process.input(6)
    await anext(session.inputs())
    session.ack()
    assert process.said() == [{"ack": 5}, {"ack": 6, "state_bytes": "AGJ5dGVz"}]
    session.state = {"n": 1}
    process.input(7)
    await anext(session.inputs())
    session.ack()
    assert process.said() == [{"ack": 7, "state": {"n": 1}}]


async def test_the_journal_is_asked_for_and_its_changes_go_with_acks(process: Process) -> None:
    session = process.session
    reading = asyncio.ensure_future(session.journal())
    await asyncio.sleep(0)
    assert process.said() == [{"claim": {}, "journal": {}}]
    process.claimed(after=0)
    process.hear("journal", {"last": 2, "entries": ["Im9sZCI=", "Im9sZDIi"]})
    journal = await asyncio.wait_for(reading, 60)
    assert len(journal) == 2
    process.input(1)
    inputs = session.inputs()
    await anext(inputs)
    journal.append("new")
    session.ack()
    [ack] = process.said()
    assert ack["ack"] == 1 and ack["journal_change"]["first"] == 3 and len(ack["journal_change"]["entries"]) == 1
    process.input(2)
    await anext(inputs)
    session.ack()
    assert process.said() == [{"ack": 2}], "the journal has not changed since"


async def test_where_to_publish_comes_with_the_claim_and_may_change(process: Process) -> None:
    process.claimed()
    assert process.session.publish is None
    process.hear("publish", {"publish": {"url": "http://room", "token": "t"}})
    assert process.session.publish == Publish("http://room", "t")


async def test_an_interrupt_is_known_at_once_and_its_callback_is_called_once(process: Process) -> None:
    session = process.session
    called: list[int] = []
    session.on_interrupt = lambda: called.append(1)
    process.claimed(after=0)
    process.input(1)
    process.hear("interrupt", {"seq": 3})
    assert session.interrupted.is_set() and called == [1]
    process.input(3, "interrupt")
    assert called == [1] and session.on_interrupt is not None
    assert (await anext(session.inputs())).seq == 3 and not session.interrupted.is_set()


async def test_an_item_that_does_not_follow_fails_the_process(process: Process) -> None:
    process.claimed(after=4)
    process.input(5)
    with pytest.raises(ValueError, match="item 7 does not follow item 5"):
        process.input(7)


async def test_a_configuration_comes_with_its_item(process: Process) -> None:
    process.claimed(after=0)
    process.input(1, "config", config={"voice": "newest"})
    item = await anext(process.session.inputs())
    assert item.config == process.session.config == {"voice": "newest"}


async def test_time_that_the_runtime_asks_for_is_passed_on_as_what_is_left(process: Process) -> None:
    process.session.extend(30)
    [said] = process.said()
    assert 0 < said["extend"] <= 30


async def test_messages_of_the_runtime_are_the_worker_s_from_then_on(process: Process) -> None:
    process.session.emit("mood", {"happy": True})
    assert process.said() == [{"emit": {"name": "mood", "data": {"happy": True}}}]
    await asyncio.wait_for(process.session.emits_stored(), 60)
    assert SessionInbox(process.session).unstored == ()


async def test_close_ends_the_input(process: Process) -> None:
    process.claimed()
    process.hear("close")
    assert [item async for item in process.session.inputs()] == []


class Piped:
    """A whole child in this process: `tell` writes to its standard input, `said` has its messages."""

    def __init__(self, runtime: Runtime, setup: Setup | None = None) -> None:
        reading, self._writing = os.pipe()
        sys.stdin = os.fdopen(reading)
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._said = b""
        self.running = asyncio.ensure_future(run_child(runtime, setup, Pipe(writing)))

    def tell(self, **what: Any) -> None:
        os.write(self._writing, json.dumps(what).encode() + b"\n")

    def end(self) -> None:
        os.close(self._writing)

    @property
    def said(self) -> list[dict[str, Any]]:
        with contextlib.suppress(BlockingIOError):
            self._said += os.read(self._reading, 65_536)
        return [json.loads(line) for line in self._said.splitlines()]


@pytest.fixture
async def piped(monkeypatch: pytest.MonkeyPatch) -> Piped:
    async def runtime(session: Session) -> None:
        async for item in session.inputs():
            session.emit("heard", {"text": item.text, "shared": session.shared})
            if item.text == "item 2":
                raise ValueError("it failed")

    monkeypatch.setattr(sys, "stdin", sys.stdin)  # It is put back at the end.
    return Piped(runtime, lambda: "models")


def item(seq: int) -> dict[str, Any]:
    return {"seq": seq, "kind": "text", "text": f"item {seq}", "boundary": False}


CLAIMED = {"after": 0, "config": {}, "state": None, "publish": None}


async def test_a_process_runs_its_runtime_until_the_worker_is_gone(piped: Piped) -> None:
    piped.tell(open=OPEN)
    piped.tell(claimed=CLAIMED)
    piped.tell(input=item(1))
    await eventually(lambda: len(piped.said) == 3)
    assert piped.said == [
        {"claim": {}},
        {"emit": {"name": "heard", "data": {"text": "item 1", "shared": "models"}}},
        {"ack": 1},
    ]
    piped.end()
    await asyncio.wait_for(piped.running, 60)


async def test_a_runtime_that_fails_says_why(piped: Piped) -> None:
    piped.tell(open=OPEN, claimed=CLAIMED, input=item(1))
    piped.tell(input=item(2))
    with pytest.raises(ValueError, match="it failed"):
        await asyncio.wait_for(piped.running, 60)
    assert piped.said[-1]["failed"].startswith("ValueError: it failed")


async def test_an_item_out_of_turn_fails_the_process(piped: Piped) -> None:
    piped.tell(open=OPEN, claimed=CLAIMED, input=item(9))
    with pytest.raises(ValueError, match="item 9 does not follow item 0"):
        await asyncio.wait_for(piped.running, 60)
    assert "item 9 does not follow item 0" in piped.said[-1]["failed"]


async def test_a_worker_that_is_gone_before_it_opened_anything_ends_the_process(piped: Piped) -> None:
    piped.end()
    await asyncio.wait_for(piped.running, 60)
    assert piped.said == []


def test_the_keeper_kills_the_groups_that_are_left_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads whole lines, however they arrive, and no signal ends it before its Worker."""
    parts = [b"+1", b"1\n+12\n-12\n", b"+13\n", b""]
    killed: list[tuple[int, int]] = []
    ignored: list[object] = []
    system = SimpleNamespace(read=lambda fd, size: parts.pop(0), killpg=lambda group, how: killed.append((group, how)))
    monkeypatch.setattr(keeper, "os", system)
    signals = SimpleNamespace(**{name: getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIG_IGN")})
    signals.SIGKILL, signals.signal = signal.SIGKILL, lambda which, how: ignored.append((which, how))
    monkeypatch.setattr(keeper, "signal", signals)
    keeper.main()
    assert sorted(killed) == [(11, signal.SIGKILL), (13, signal.SIGKILL)]
    assert ignored == [(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def test_a_process_logs_as_its_worker_does_and_prints_nothing_among_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []
    monkeypatch.setattr(sys, "argv", ["child", "echo", "--log-level", "debug", "--log-json"])
    system = SimpleNamespace(dup=lambda fd: done.append(f"dup {fd}"), dup2=lambda *fds: done.append(fds))
    monkeypatch.setattr(child_main, "os", system)
    monkeypatch.setattr(child_main, "configure_logging", lambda **given: done.append(given))
    monkeypatch.setattr(child_main, "run_child", lambda runtime, setup, pipe: (runtime, setup))
    monkeypatch.setattr(child_main, "run_loop", lambda running, **given: done.append((*running, given)))
    child_main.main()
    assert done == [
        "dup 1",
        (2, 1),
        {"level": "debug", "json": True},
        (BUILT_IN["echo"], None, {"runs_code_of_others": True}),
    ]
