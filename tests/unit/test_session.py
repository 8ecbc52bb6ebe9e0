"""What a runtime sees: order, acks folded into one cursor, interrupts, state, the end.

See docs/guides/write-a-runtime.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dhsched.errors import BadId, BadValue, TooManyEmits
from dhsched.links.messages import Source
from dhsched.ownership.journal import Change
from dhsched.types import Generation
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.session import EMITS_MAX, LATE_EVERY_S, LATE_MAX_S, STATE_BYTES_MAX, Emission, Item, Session


class FakePort:
    def __init__(self) -> None:
        self.acks: list[tuple[int, bytes | None]] = []
        self.emits: list[Emission] = []
        self.lines: list[tuple[Source, str | bytes]] = []
        self.claims = 0

    def claim(self, session: Session) -> None:
        self.claims += 1

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None:
        self.acks.append((n, saved))

    def emit(self, session: Session, emission: Emission) -> None:
        self.emits.append(emission)

    def log(self, session: Session, source: Source, text: str | bytes) -> None:
        self.lines.append((source, text))


def text(seq: int) -> Item:
    return Item(seq, "text", b"x", False)


def interrupt(seq: int) -> Item:
    return Item(seq, "interrupt", b"", True)


@pytest.fixture
def port() -> FakePort:
    return FakePort()


@pytest.fixture
def session(port: FakePort) -> Session:
    return Session("t/a", Generation("w#1", 3), port, may_claim=True)


@pytest.fixture
def inbox(session: Session) -> SessionInbox:
    return SessionInbox(session)


async def test_asking_for_the_next_item_acks_the_one_before(
    session: Session, inbox: SessionInbox, port: FakePort
) -> None:
    inputs = session.inputs()
    waiting = asyncio.ensure_future(anext(inputs))
    await asyncio.sleep(0)
    assert port.claims == 1, "input is claimed when it is asked for, not when the runtime begins"
    inbox.begins_after(4, b"{}", b"old")
    assert inbox.accept(text(5)) and inbox.accept(text(6))
    assert (await waiting).seq == 5 and port.acks == []
    session.state = b"new"
    assert (await anext(inputs)).seq == 6
    assert port.acks == [(5, b"new")]
    assert session.config == {}


async def test_acks_in_any_order_fold_into_one_cursor(session: Session, inbox: SessionInbox, port: FakePort) -> None:
    inbox.begins_after(0, b"", b"")
    for seq in (1, 2, 3, 4):
        inbox.accept(text(seq))
    inputs = session.inputs(auto_ack=False)
    one, two, three, _four = [await anext(inputs) for _ in range(4)]
    session.ack(three)
    session.ack(two)
    assert port.acks == []
    session.ack(one)
    assert port.acks == [(3, None)]
    session.ack(one)
    session.ack()
    assert port.acks == [(3, None), (4, None)]


async def test_an_item_that_was_never_handed_out_cannot_be_acked(
    session: Session, inbox: SessionInbox, port: FakePort
) -> None:
    inbox.begins_after(0, b"", b"")
    inbox.accept(text(1))
    inputs = session.inputs(auto_ack=False)
    await anext(inputs)
    with pytest.raises(BadValue, match="item 9 of t/a was never handed out; the last one was 1"):
        session.ack(text(9))
    assert port.acks == []


async def test_only_the_next_item_or_an_interrupt_is_accepted(session: Session, inbox: SessionInbox) -> None:
    inbox.begins_after(2, b"", b"")
    assert not inbox.accept(text(2)) and not inbox.accept(text(4))
    assert inbox.accept(text(3))
    assert inbox.accept(interrupt(9))
    assert not inbox.accept(interrupt(9)) and not inbox.accept(text(9))
    assert inbox.accept(text(10))


async def test_an_interrupt_drops_what_waits_and_is_known_at_once(
    session: Session, inbox: SessionInbox, port: FakePort
) -> None:
    called: list[int] = []
    session.on_interrupt = lambda: called.append(inbox.accepted[0])
    inbox.begins_after(0, b"", b"")
    inputs = session.inputs()
    inbox.accept(text(1))
    assert (await anext(inputs)).seq == 1
    inbox.accept(text(2))
    inbox.accept(interrupt(5))
    assert session.interrupted.is_set() and called == [5]
    assert (await anext(inputs)).seq == 5
    assert not session.interrupted.is_set()
    session.ack()
    assert port.acks == [(1, None), (5, None)]


async def test_a_config_item_becomes_the_configuration(session: Session, inbox: SessionInbox) -> None:
    inbox.begins_after(0, b'{"voice": "old"}', b"")
    new = b'{"voice": "new"}'
    inbox.accept(Item(1, "config", new, False, new))
    assert session.config == {"voice": "old"}
    assert (await anext(session.inputs())).config == session.config == {"voice": "new"}


async def test_inputs_end_when_the_live_moves_on(session: Session, inbox: SessionInbox, port: FakePort) -> None:
    inbox.begins_after(0, b"", b"")
    inbox.accept(text(1))
    inputs = session.inputs()
    await anext(inputs)
    waiting = asyncio.ensure_future(anext(inputs, None))
    await asyncio.sleep(0)
    inbox.close()
    assert await waiting is None and session.stopping.is_set()


async def test_a_prepared_session_claims_nothing_until_it_is_committed(port: FakePort) -> None:
    session = Session("t/a", Generation("w#1", 3), port)
    inbox = SessionInbox(session)
    waiting = asyncio.ensure_future(anext(session.inputs()))
    await asyncio.sleep(0)
    assert port.claims == 0
    inbox.allow_claim()
    assert port.claims == 1
    waiting.cancel()


async def test_busy_while_starting_and_while_extended(session: Session, inbox: SessionInbox) -> None:
    now = asyncio.get_running_loop().time()
    assert inbox.busy(now), "it has not asked for input yet"
    inbox.begins_after(0, b"", b"")
    inbox.accept(text(1))
    await anext(session.inputs())
    assert not inbox.busy(now)
    session.extend(30)
    assert inbox.busy(now + 29) and not inbox.busy(now + 31) and not inbox.busy(inbox.busy_until)
    session.extend(1e9)
    assert not inbox.busy(now + 700), "one extension is bounded"


async def test_a_claim_that_was_granted_is_known_whenever_it_is_asked_for(inbox: SessionInbox) -> None:
    inbox.begins_after(0, b"", b"")
    assert inbox.session.claimed.is_set()


async def test_the_journal_is_read_once(session: Session, inbox: SessionInbox, port: FakePort) -> None:
    reading = asyncio.ensure_future(session.journal())
    await asyncio.sleep(0)
    assert port.claims == 1 and inbox.wants_journal
    inbox.journal_read(0, [])
    journal = await asyncio.wait_for(reading, 60)
    assert await asyncio.wait_for(session.journal(), 60) is journal
    assert port.claims == 1 and not inbox.wants_journal
    inbox.close()
    assert await asyncio.wait_for(session.journal(), 60) is journal


async def test_late_output_is_passed_on_now_and_then_and_before_each_ack(
    session: Session, inbox: SessionInbox, port: FakePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    heard: list[tuple[float, int]] = []
    inbox.watch_late(lambda seconds: heard.append((seconds, 1)))
    inbox.watch_late(lambda seconds: heard.append((seconds, 2)))
    session.late(0.25)
    assert heard == [(0.25, 1), (0.25, 2)], "everybody who watches is called"
    session.late(0.5)
    session.late(0.5)
    assert len(heard) == 2 and inbox.late_s == 1.25, "not for each frame"
    now += LATE_EVERY_S
    session.late(0.5)
    assert heard[2:] == [(1.5, 1), (1.5, 2)]
    inbox.accept(text(1))
    await anext(session.inputs())
    session.late(0.25)
    session.ack()
    assert heard[4:] == [(0.25, 1), (0.25, 2)] and port.acks, "what belongs to an item is known before its ack"
    for nothing in (0.0, -1.0, float("nan")):
        session.late(nothing)
    assert inbox.late_s == 2.0
    session.late(float("inf"))
    assert inbox.late_s == 2.0 + LATE_MAX_S, "one call is bounded"


async def test_state_is_a_small_value(session: Session, port: FakePort) -> None:
    for large in (b"x" * (STATE_BYTES_MAX + 1), "x" * STATE_BYTES_MAX):
        with pytest.raises(BadValue, match=f"at most {STATE_BYTES_MAX}"):
            session.state = large
    with pytest.raises(BadValue, match="must be bytes or a JSON value"):
        session.state = object()
    assert session.state == {}
    values: tuple[object, ...] = ({"a": [1, None]}, "text", 7, None, [], {}, b"3", b"", b"\0j1", b"\0b", b"\xff")
    for value in values:
        session.state = value
        assert session.state == value and type(session.state) is type(value)


@pytest.mark.parametrize(
    ("raw", "state"), [(b"", {}), (b"3", b"3"), (b"\0j{", b"\0j{"), (b'\0j"x"', "x"), (b"\0bx", b"x")]
)
async def test_a_state_is_read_as_it_lies_in_the_store(
    session: Session, inbox: SessionInbox, raw: bytes, state: object
) -> None:
    inbox.begins_after(0, b"rubbish", raw)
    assert session.state == state and session.config == {}


async def test_what_is_nested_too_deep_stops_nobody(session: Session, inbox: SessionInbox) -> None:
    """It may lie in a store from before there was a limit."""
    deep = b"[" * 5_000 + b"]" * 5_000
    inbox.begins_after(0, b'{"a": ' + deep + b"}", b"\0j" + deep)
    assert session.config == {} and session.state == b"\0j" + deep
    value: list[object] = []
    for _ in range(5_000):
        value = [value]
    with pytest.raises(BadValue, match="recursion"):
        session.state = value


async def test_messages_wait_until_they_are_stored(session: Session, inbox: SessionInbox, port: FakePort) -> None:
    for n in range(EMITS_MAX):
        session.emit("word", {"n": n})
    assert port.emits[1] == Emission(2, "word", b'{"n":1}')
    with pytest.raises(TooManyEmits, match="64 messages of t/a wait to be stored"):
        session.emit("word")
    storing = asyncio.ensure_future(session.emits_stored())
    inbox.stored(EMITS_MAX - 1)
    await asyncio.sleep(0)
    assert not storing.done() and [each.n for each in inbox.unstored] == [EMITS_MAX]
    inbox.stored(EMITS_MAX)
    await storing
    session.emit("word")
    assert [each.n for each in inbox.unstored] == [EMITS_MAX + 1], "what was refused has no number"


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("a name", {}, "name of a message"),
        ("word", {"text": "x" * 4_096}, "has 4107 bytes, at most 4096"),
        ("word", {"text": object()}, "must be a JSON object"),
        ("word", [1], "must be a JSON object"),
    ],
)
async def test_a_message_that_cannot_be_sent_is_refused(session: Session, name: str, data: Any, complaint: str) -> None:
    with pytest.raises((BadValue, BadId), match=complaint):
        session.emit(name, data)


async def test_spoken_is_emitted_now_and_then_and_always_at_an_interrupt(
    session: Session, inbox: SessionInbox, port: FakePort
) -> None:
    inbox.begins_after(0, b"", b"")
    for chars in range(10):
        session.spoken(text(1), chars)
    assert [each.data for each in port.emits] == [b'{"seq":1,"chars":0}'], "the others came too soon"
    inbox.accept(Item(4, "interrupt", b"", True))
    session.spoken(text(1), 10)
    session.spoken(None)
    assert [each.data for each in port.emits[1:]] == [
        b'{"seq":1,"chars":10,"interrupt":4}',
        b'{"seq":0,"chars":0,"interrupt":4}',
    ]
    for _ in range(EMITS_MAX):
        session.spoken(None)
    assert len(port.emits) == EMITS_MAX, "where too many wait, nothing is emitted and nothing is raised"
