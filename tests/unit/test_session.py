"""What a runtime sees: order, acks folded into one cursor, interrupts, state, the end.

See docs/guides/write-a-runtime.md.
"""

from __future__ import annotations

import asyncio

import pytest

from dhsched.errors import BadValue
from dhsched.types import Generation
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.session import STATE_BYTES_MAX, Item, Session


class FakePort:
    def __init__(self) -> None:
        self.acks: list[tuple[int, bytes | None]] = []
        self.claims = 0

    def claim(self, session: Session) -> None:
        self.claims += 1

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None) -> None:
        self.acks.append((n, saved))


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
    session.on_interrupt = lambda: called.append(session.accepted[0])
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
    assert inbox.busy(now + 29) and not inbox.busy(now + 31)
    session.extend(1e9)
    assert not inbox.busy(now + 700), "one extension is bounded"


async def test_state_is_a_small_value(session: Session, port: FakePort) -> None:
    for large in (b"x" * (STATE_BYTES_MAX + 1), "x" * STATE_BYTES_MAX):
        with pytest.raises(BadValue, match="at most 4096"):
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
