"""An ack of what was never handed out: it is answered, and forgotten. Later acks that are right count."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from dhsched.errors import ChildFailed
from dhsched.links import messages
from dhsched.links.messages import Source
from dhsched.ownership.items import mark_of
from dhsched.ownership.journal import Change
from dhsched.tokens import Boot
from dhsched.types import Generation
from dhsched.worker.exec import exec_runtime
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.session import Emission, Item, Session
from tests.harness.acked import until_acked
from tests.harness.fleet import PATIENCE_S, Fleet, fleet

LIVE, EPOCH = "default/a", 1


class Puller:
    """A Worker that speaks the protocol itself, right or wrong."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.marks: list[bytes] = []
        self._heard: list[Any] = []

    def ack(self, n: int, saved: bytes | None = None) -> messages.Ack:
        """What a well-behaved Worker would say of item n, where it has it."""
        return messages.Ack(LIVE, EPOCH, n, saved, self.marks[n - 1] if n <= len(self.marks) else b"")

    async def say(self, *said: messages.Message) -> None:
        await self.socket.send_bytes(messages.encode([*said]))

    async def hear(self, kind: type) -> Any:
        """The next message of this kind; others are passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for at, said in enumerate(self._heard):
                    if isinstance(said, kind):
                        del self._heard[: at + 1]
                        return said
                message = await self.socket.receive()
                assert message.type is aiohttp.WSMsgType.BINARY, message
                self._heard += messages.read_infer_says(message.data)


async def pulling(f: Fleet, socket: aiohttp.ClientWebSocketResponse) -> Puller:
    """A Worker that was given live a, which is claimed now, and its three items."""
    store = f.controllers[0].context.store
    worker = (await store.register_worker(name="raw", boot="b1", pool="gpu", capacity=1)).worker
    await store.report(worker=worker, boot="b1")
    await f.replicas[0].fleet.refresh()
    assert (await f.create("a"))["worker"] == worker
    for n in range(3):
        assert (await f.push("a", f"t{n}"))[0] == 200
    puller = Puller(socket)
    token = f.controllers[0].pull_text.tokens.issue(Boot(worker, "b1", "raw", "gpu", 1))
    await puller.say(messages.Hello(token), messages.Pull(LIVE, EPOCH, 0))
    items = await puller.hear(messages.Items)
    assert (items.first, len(items.items)) == (1, 3)
    puller.marks = [mark_of(item) for item in items.items]
    return puller


@pytest.mark.parametrize("together", [False, True])
async def test_a_wrong_ack_is_answered_and_the_next_right_one_counts(tmp_path: Path, together: bool) -> None:
    async with fleet(tmp_path) as f, f.http.ws_connect(f"{f.infer[0]}/v1/pull") as socket:
        puller = await pulling(f, socket)
        wrong, right = puller.ack(99, b"wrong"), puller.ack(2, b"right")
        if together:
            await puller.say(wrong, right)
        else:
            await puller.say(wrong)
        problem = await puller.hear(messages.Problem)
        assert problem.code == "AHEAD" and (problem.live, problem.epoch) == (LIVE, EPOCH)
        assert "acked 99" in problem.detail and "up to 3" in problem.detail, problem
        if not together:
            await puller.say(right)
        await until_acked(f, "a", 2)
        store = f.controllers[0].context.store
        assert await store.link.call("HGET", store.keys.of("data", LIVE), "saved") == b"right"
        await f.push("a", "t3")
        items = await puller.hear(messages.Items)
        assert items.first == 4
        puller.marks.append(mark_of(items.items[0]))
        await puller.say(puller.ack(4))
        await until_acked(f, "a", 4)


async def test_an_ack_that_the_store_refuses_is_forgotten_as_well(tmp_path: Path) -> None:
    """What was passed on and acked may be more than a store that lost history knows of."""
    async with fleet(tmp_path) as f, f.http.ws_connect(f"{f.infer[0]}/v1/pull") as socket:
        puller = await pulling(f, socket)
        store = f.controllers[0].context.store
        key = store.keys.of("live", LIVE)
        appended, _, rest = (await store.link.call("HGET", key, "cursors")).split(b" ", 2)
        await store.link.call("HSET", key, "cursors", b"%b 1 %b" % (appended, rest))
        await puller.say(puller.ack(3))
        problem = await puller.hear(messages.Problem)
        assert problem.code == "AHEAD" and "acked 3" in problem.detail and "up to 1" in problem.detail
        await puller.say(puller.ack(1))
        await until_acked(f, "a", 1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"saved": b"x" * 65_537}, "65536"),
        ({"mark": b"abc"}, "mark"),
        ({"journal": messages.JournalChange(0, 0, [b"x"])}, "first entry"),
        ({"journal": messages.JournalChange(0, 1, [b"x" * 65_536] * 17)}, "bytes of journal"),
    ],
)
async def test_an_ack_with_a_state_a_mark_or_a_journal_that_cannot_be_ends_the_connection(
    tmp_path: Path, wrong: dict[str, Any], says: str
) -> None:
    async with fleet(tmp_path) as f, f.http.ws_connect(f"{f.infer[0]}/v1/pull") as socket:
        puller = await pulling(f, socket)
        await puller.say(msgspec.structs.replace(puller.ack(1), **wrong))
        problem = await puller.hear(messages.Problem)
        assert problem.code == "BAD_REQUEST" and says in problem.detail
        record = await f.controllers[0].context.records.lives.get(LIVE)
        assert record is not None and (record.acked, record.saved) == (0, b""), "nothing of it was taken"


# -- who makes them


class NoPort:
    """A connection to nobody."""

    def __init__(self) -> None:
        self.acks: list[int] = []

    def claim(self, session: Session) -> None:
        inbox = SessionInbox(session)
        inbox.begins_after(0, b"", b"")
        inbox.accept(Item(1, "text", b"hello", True))

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None:
        self.acks.append(n)

    def emit(self, session: Session, emission: Emission) -> None:
        pass

    def log(self, session: Session, source: Source, text: str | bytes) -> None:
        pass


@pytest.mark.parametrize(
    ("says", "complaint"),
    [('{"ack": 2}', "acked item 2.*handed items up to 1"), ('{"ack": "1"}', "acked '1'.*number of an item")],
)
async def test_a_child_that_acks_what_it_was_never_handed_fails_with_words(
    tmp_path: Path, says: str, complaint: str
) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"import sys\nfor line in sys.stdin:\n    if 'input' in line: print({says!r}, flush=True)")
    port = NoPort()
    session = Session(LIVE, Generation("w#1", EPOCH), port, may_claim=True)
    with exec_runtime(f"{sys.executable} {child}") as runtime, pytest.raises(ChildFailed, match=complaint):
        await asyncio.wait_for(runtime(session), PATIENCE_S)
    assert port.acks == []
