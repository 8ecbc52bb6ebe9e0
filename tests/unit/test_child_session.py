"""A Worker's end of a child process, with a child of the test: what it is told, and what its words lead to."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from dhsched.errors import ChildFailed
from dhsched.links.messages import Source
from dhsched.ownership.journal import Change
from dhsched.types import Generation
from dhsched.worker import exec as executing
from dhsched.worker.child_session import PythonChildSession
from dhsched.worker.exec import ChildSession
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.session import Emission, Item, Publish, Session
from tests.harness.linking import eventually


class Port:
    """What the session of the child asks for."""

    def __init__(self) -> None:
        self.acks: list[tuple[int, bytes | None, Change | None]] = []
        self.emits: list[Emission] = []
        self.lines: list[tuple[Source, str | bytes]] = []
        self.claims = 0

    def claim(self, session: Session) -> None:
        self.claims += 1

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None:
        self.acks.append((n, saved, journal))

    def emit(self, session: Session, emission: Emission) -> None:
        self.emits.append(emission)

    def log(self, session: Session, source: Source, text: str | bytes) -> None:
        self.lines.append((source, text))


class Pipe:
    """The child's standard input: `told` has its lines."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.told += map(json.loads, data.splitlines())

    async def drain(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Process:
    """A process that ends when the test says so, or when it is killed."""

    def __init__(self) -> None:
        self.stdin, self.stdout, self.stderr = Pipe(), asyncio.StreamReader(), asyncio.StreamReader()
        self.pid = 4_000_000  # No process has this number.
        self.returncode: int | None = None
        self.ended = asyncio.Event()

    async def wait(self) -> int:
        await self.ended.wait()
        return self.returncode or 0

    def say(self, *lines: dict[str, Any] | str) -> None:
        for line in lines:
            self.stdout.feed_data((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")

    def end(self, status: int) -> None:
        self.returncode = status
        self.stdout.feed_eof()
        self.stderr.feed_eof()
        self.ended.set()


class Rig:
    """A session and its child, which runs."""

    def __init__(self, kind: type[ChildSession]) -> None:
        self.port, self.process = Port(), Process()
        self.session = Session("t/a", Generation("w#1", 3), self.port, may_claim=True)
        self.inbox = SessionInbox(self.session)
        self.session.digital_id = "anna"
        child = kind(self.session, cast(Any, self.process), ["my-child"], 0.05)
        self.running = asyncio.ensure_future(child.run())

    def begin(self, after: int = 0, state: bytes = b"") -> None:
        self.inbox.begins_after(after, b"{}", state)

    def items(self, *seqs: int, kind: Any = "text") -> None:
        for seq in seqs:
            assert self.inbox.accept(Item(seq, kind, f"item {seq}".encode(), False))

    def told(self, what: str) -> list[Any]:
        return [each[what] for each in self.process.stdin.told if what in each]

    async def handed(self, count: int) -> None:
        await eventually(lambda: len(self.told("input")) >= count)

    async def failed(self) -> str:
        """Return why the child failed."""
        with pytest.raises(ChildFailed) as failure:
            await asyncio.wait_for(self.running, 60)
        return str(failure.value)


@pytest.fixture
async def rigs(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setattr(executing, "LAST_WORDS_S", 0.01)
    made: list[Rig] = []

    def make(kind: type[ChildSession] = ChildSession) -> Rig:
        made.append(Rig(kind))
        return made[-1]

    yield make
    for rig in made:
        rig.process.end(0)
        await asyncio.gather(rig.running, return_exceptions=True)


async def test_one_ack_of_a_child_is_one_ack_with_its_state(rigs: Any) -> None:
    rig = rigs()
    rig.begin()
    rig.items(1, 2, 3)
    await rig.handed(3)
    rig.process.say({"ack": 2, "state": "after two"})
    await eventually(lambda: rig.port.acks)
    assert rig.port.acks == [(2, b"after two", None)], "the state is about both items"
    rig.process.say({"state": {"n": 3}}, {"ack": 3})
    await eventually(lambda: len(rig.port.acks) == 2)
    assert rig.port.acks[1][0] == 3 and rig.session.state == {"n": 3}
    rig.process.say({"state": "", "ack": 3}, {"extend": 5})
    await eventually(lambda: rig.inbox.busy_until)
    assert rig.session.state == "" and len(rig.port.acks) == 2


async def test_a_child_is_told_what_its_live_is_made_of_and_its_items(rigs: Any) -> None:
    rig = rigs()
    rig.begin()
    rig.items(1)
    await rig.handed(1)
    [opened] = rig.told("open")
    assert (opened["live"], opened["epoch"], opened["digital_id"], opened["config"]) == ("t/a", 3, "anna", {})
    assert rig.told("input") == [{"seq": 1, "kind": "text", "text": "item 1", "boundary": False}]
    assert rig.told("resume") == [], "nothing has changed since"


async def test_a_child_is_told_what_has_changed_since_it_was_opened(rigs: Any) -> None:
    rig = rigs()
    await eventually(lambda: rig.told("open"))
    rig.begin(state=b"saved since")
    rig.items(1, 2)
    await rig.handed(2)
    assert rig.told("resume") == [{"config": {}, "state": "saved since"}]


async def test_an_interrupt_is_told_at_once_and_may_be_acked_before_it_is_handed(rigs: Any) -> None:
    rig = rigs()
    rig.begin()
    rig.items(1)
    await rig.handed(1)
    rig.items(4, kind="interrupt")
    assert rig.told("interrupt") == [{"seq": 4}]
    rig.process.say({"ack": 4})
    await rig.handed(2)
    rig.process.say({"ack": 4})
    await eventually(lambda: rig.port.acks)
    assert rig.port.acks == [(4, None, None)]


@pytest.mark.parametrize(
    "said, why",
    [
        ({"ack": 2}, "acked item 2, but was handed items up to 1"),
        ({"ack": "1"}, "acked '1'; send the number of an item"),
        ({"ack": True}, "acked True; send the number of an item"),
        ({"emit": {"data": {}}}, "emitted what cannot be sent"),
        ({"append": ["x"]}, "before it had read it"),
        ({"replace": ["x"]}, "before it had read it"),
    ],
)
async def test_a_child_that_is_wrong_about_its_live_fails(rigs: Any, said: dict[str, Any], why: str) -> None:
    rig = rigs()
    rig.begin()
    rig.items(1)
    await rig.handed(1)
    rig.process.say(said)
    await eventually(lambda: rig.process.stdin.closed)
    rig.process.end(0)
    assert why in await rig.failed() and rig.port.acks == []


async def test_a_child_that_has_read_its_journal_may_write_to_it(rigs: Any) -> None:
    rig = rigs()
    rig.begin()
    rig.process.say({"journal": {}})
    await eventually(lambda: rig.inbox.wants_journal)
    rig.inbox.journal_read(2, [b'\x00j"old"', b"raw"])
    await eventually(lambda: rig.told("journal"))
    assert len(rig.told("journal")[0]["entries"]) == 2
    rig.items(1)
    await rig.handed(1)
    rig.process.say({"replace": ["summary"], "append": ["new"], "ack": 1})
    await eventually(lambda: rig.port.acks)
    [(_, _, change)] = rig.port.acks
    assert change is not None and len(change.entries) == 2 and change.drop == 2
    rig.process.say({"append": "no list"})
    await eventually(lambda: rig.process.stdin.closed)
    rig.process.end(0)
    assert "wrote no list to its journal" in await rig.failed()


async def test_what_is_no_message_is_the_live_s_log(rigs: Any) -> None:
    rig = rigs()
    rig.begin()
    rig.process.say("loading the model", "[1]", {"emit": {"name": "mood", "data": {"happy": True}}})
    rig.process.stderr.feed_data(b"a warning\n")
    await eventually(lambda: rig.port.emits and len(rig.port.lines) >= 3)
    assert ("stdout", b"loading the model\n") in rig.port.lines and ("stdout", b"[1]\n") in rig.port.lines
    assert rig.port.emits[0].name == "mood"


async def test_a_child_that_ends_by_itself_fails_with_its_last_words(rigs: Any) -> None:
    rig = rigs()
    rig.begin()
    rig.process.stderr.feed_data(b"no such model\n")
    await eventually(lambda: rig.port.lines)
    rig.process.end(3)
    assert await rig.failed() == "my-child ended with status 3: no such model"


async def test_a_child_is_told_to_close_and_its_last_acks_count(rigs: Any) -> None:
    rig = rigs()
    rig.begin()
    rig.items(1)
    await rig.handed(1)
    rig.inbox.close()
    await eventually(lambda: rig.told("close"))
    rig.process.say({"ack": 1})
    rig.process.end(0)
    await asyncio.wait_for(rig.running, 60)
    assert rig.port.acks == [(1, None, None)] and rig.session.on_interrupt is None


async def test_a_python_child_claims_when_its_runtime_asks_and_is_told_where_input_begins(rigs: Any) -> None:
    rig = rigs(PythonChildSession)
    await eventually(lambda: rig.told("open"))
    await asyncio.sleep(0)
    assert rig.port.claims == 0, "its runtime is not built yet"
    rig.process.say({"claim": {}})
    await eventually(lambda: rig.port.claims)
    assert rig.told("claimed") == []
    rig.session.publish = Publish("http://room", "t-1")
    rig.begin(after=4, state=b"\xffbytes")
    await eventually(lambda: rig.told("claimed"))
    [claimed] = rig.told("claimed")
    assert claimed["after"] == 4 and claimed["publish"] == {"url": "http://room", "token": "t-1"}
    rig.items(5)
    rig.session.publish = Publish("http://room", "t-2")
    rig.items(6)
    await rig.handed(2)
    assert len(rig.told("claimed")) == 1 and rig.told("publish") == [
        {"publish": {"url": "http://room", "token": "t-2"}}
    ]
    rig.process.say({"ack": 6, "state_bytes": "AGJ5dGVz"})
    await eventually(lambda: rig.port.acks)
    assert rig.session.state == b"\x00bytes" and [n for n, *_ in rig.port.acks] == [6], "only the child acks"


async def test_a_python_child_says_why_its_runtime_failed(rigs: Any) -> None:
    rig = rigs(PythonChildSession)
    rig.process.say({"claim": {}}, {"failed": "ValueError: no"})
    await eventually(lambda: rig.port.claims)
    rig.process.end(1)
    assert await rig.failed() == "ValueError: no"


async def test_a_python_child_that_is_stopped_before_it_asked_for_input_claims_nothing(rigs: Any) -> None:
    rig = rigs(PythonChildSession)
    await eventually(lambda: rig.told("open"))
    rig.inbox.close()
    await eventually(lambda: rig.told("close"))
    rig.process.end(0)
    await asyncio.wait_for(rig.running, 60)
    assert rig.port.claims == 0
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing of it is left"


def test_a_child_ends_by_a_broken_pipe_as_usual() -> None:
    """The keeper may be gone when a child names itself to it, which must not end the child; its command is no different
    from others."""
    keeper = executing.Keeper()
    keeper._process.kill()
    keeper._process.wait()
    usual = signal.getsignal(signal.SIGPIPE)
    try:
        command = ["sh", "-c", "kill -PIPE $$; echo it goes on"]
        ended = subprocess.run(command, preexec_fn=keeper.note_self, capture_output=True, timeout=60)
        keeper.note_self()
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGPIPE, usual)
        keeper.close()
    assert (ended.returncode, ended.stdout) == (-signal.SIGPIPE, b"")
