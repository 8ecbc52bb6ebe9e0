"""Traces of items: what an item carries, which spans follow, and that neither callers nor Workers are trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from unittest.mock import Mock

import pytest

from dhsched.infer.granted_pull import NOTHING
from dhsched.infer.item_traces import LIVES_MAX, TRACED_PER_S, ItemTraces
from dhsched.infer.pulls import Pulls
from dhsched.links.messages import Items
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import (
    TRACE_BYTES,
    UNMARKED,
    marked,
    read,
    trace_of,
    unmarked,
    with_config,
    with_trace,
    without_trace,
)
from dhsched.store.steps.redis import Ack, Emit, RedisStore
from dhsched.types import Generation
from dhsched.web.logs import add_trace
from dhsched.web.otlp import Phase
from dhsched.web.traceparent import Parent, read_traceparent, traceparent_of
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.pull_client import item_of
from dhsched.worker.session import Emission, Session
from tests.unit.pulling import Peer, pull_of

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
LIVE = "t/a"


class Sent:
    """What was sent, and a clock."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.spans: list[tuple[Phase, int, Parent | None, dict[str, str | int], int]] = []
        self.traces = ItemTraces(self.send, lambda: self.now_s)

    def send(
        self,
        phases: Sequence[Phase],
        trace_id: int,
        parent: Parent | None,
        attributes: dict[str, str | int],
        *,
        span_id: int = 0,
    ) -> None:
        [phase] = phases
        self.spans.append((phase, trace_id, parent, attributes, span_id))

    def item(self, given: str = GOOD) -> bytes:
        traced = self.traces.begin(given)
        assert traced is not None
        self.traces.appended(traced, LIVE, o.Appended(5))
        return marked(with_trace(unmarked("text", b"hello", False), traced.trace), UNMARKED)

    def deliver(self, *items: bytes, first: int = 5, epoch: int = 1) -> None:
        self.traces.delivered("A#1", Items(LIVE, epoch, 1, first, [*items]))

    def ack(self, n: int, *, epoch: int = 1, ended: bool = False) -> None:
        self.traces.acked([Ack(LIVE, "A#1", epoch, n, None, UNMARKED)], [o.Acked(n, ended)])

    @property
    def names(self) -> list[str]:
        return [phase.name for phase, *_ in self.spans]


def emit_of(n: int = 1, *, worker: str = "A#1", epoch: int = 1) -> Emit:
    return Emit(LIVE, worker, epoch, n, "word", b"{}", 0)


@pytest.mark.parametrize("payload", [b"", b"hello", "grüße".encode() * 9])
def test_an_item_has_its_trace_behind_its_payload(payload: bytes) -> None:
    trace = bytes(range(TRACE_BYTES))
    for kind in ("text", "interrupt"):
        plain = unmarked(kind, payload, True)
        blob = marked(with_trace(plain, trace), UNMARKED)
        assert trace_of(blob) == trace and without_trace(blob) == marked(plain, UNMARKED)
        assert read(blob) == read(without_trace(blob))._replace(trace=trace)
        assert not trace_of(without_trace(blob)) and without_trace(without_trace(blob)) == without_trace(blob)
    interrupt = with_config(payload + b"\xff" + trace, b'{"a":1}')
    assert read(interrupt)[1:] == (payload, True, b'{"a":1}', trace)


def test_the_bytes_of_a_config_item_are_its_configuration() -> None:
    blob = marked(unmarked("config", b"\xff" * 40, False), UNMARKED)
    assert read(blob).config == b"\xff" * 40 and not trace_of(blob) and without_trace(blob) == blob


def test_an_item_is_traced_from_its_push_to_its_ack() -> None:
    sent = Sent()
    item = sent.item()
    appended, trace_id, caller, attributes, span_id = sent.spans[0]
    assert (appended.name, trace_id, caller) == ("append", TRACE, Parent(TRACE, SPAN, True))
    assert attributes == {"dhsched.live": LIVE, "dhsched.outcome": "Appended", "dhsched.seq": 5}
    sent.now_s += 1
    sent.deliver(item)
    sent.now_s += 2
    sent.traces.emitting(emit_of(), 5)
    sent.traces.emitted(emit_of())
    sent.ack(5)
    assert sent.names == ["append", "deliver", "emit", "ack"]
    assert {parent for _, _, parent, *_ in sent.spans[1:]} == {Parent(TRACE, span_id, True)}
    assert sent.spans[1][0] == Phase("deliver", 1_000_000, 1_001_000)
    assert sent.spans[3][0] == Phase("ack", 1_001_000, 1_003_000)
    runtime = read_traceparent(item_of(5, item).traceparent)
    assert runtime == Parent(TRACE, span_id, True), "what a runtime does is below the push"


def test_an_item_is_delivered_and_acked_once_and_its_last_message_may_come_after() -> None:
    sent = Sent()
    item = sent.item()
    sent.deliver(item)
    sent.deliver(item)
    sent.ack(5)
    sent.ack(5)
    assert sent.names == ["append", "deliver", "ack"]
    sent.traces.emitting(emit_of(), 5)
    sent.traces.emitted(emit_of())
    sent.traces.emitted(emit_of())
    assert sent.names[3:] == ["emit"]
    sent.ack(6, ended=True)
    sent.traces.emitting(emit_of(2), 5)
    sent.traces.emitted(emit_of(2))
    assert len(sent.spans) == 4, "the live has ended"


def test_a_worker_can_name_only_items_that_were_sent_to_it() -> None:
    sent = Sent()
    sent.deliver(sent.item())
    for row, item in ((emit_of(), 6), (emit_of(worker="B#1"), 5), (emit_of(epoch=2), 5)):
        sent.traces.emitting(row, item)
        sent.traces.emitted(row)
    sent.ack(5, epoch=2)
    assert sent.names == ["append", "deliver"]


@pytest.mark.parametrize("given", ["", "nonsense", GOOD + "0", GOOD.upper(), "é" * 55])
def test_a_header_that_is_none_traces_nothing(given: str) -> None:
    assert Sent().traces.begin(given) is None


def test_what_a_caller_does_not_sample_reaches_the_runtime_without_spans() -> None:
    sent = Sent()
    item = sent.item(GOOD[:-1] + "0")
    sent.deliver(item)
    sent.ack(5)
    assert not sent.spans and item_of(5, item).traceparent == GOOD[:-1] + "0"


def test_further_items_in_a_second_are_not_traced() -> None:
    sent = Sent()
    traced = [sent.traces.begin(GOOD) for _ in range(int(TRACED_PER_S) + 50)]
    assert sum(each is not None for each in traced) == TRACED_PER_S


def test_what_is_known_of_items_in_flight_is_bounded() -> None:
    sent = Sent()
    item = sent.item()
    for live in range(LIVES_MAX + 1):
        sent.traces.delivered("A#1", Items(f"t/{live}", 1, 1, 5, [item]))
    before = len(sent.spans)
    sent.traces.acked([Ack("t/0", "A#1", 1, 5, None, UNMARKED)], [o.Acked(5, False)])
    assert len(sent.spans) == before
    sent.traces.acked([Ack("t/1", "A#1", 1, 5, None, UNMARKED)], [o.Acked(5, False)])
    assert len(sent.spans) == before + 1


def test_a_trace_is_a_header_again() -> None:
    trace = bytes.fromhex(GOOD[3:35] + GOOD[36:52] + GOOD[53:]) + bytes(6)
    assert traceparent_of(trace) == GOOD


class Port:
    """A session's connection that keeps what is emitted."""

    def __init__(self) -> None:
        self.emits: list[Emission] = []

    def claim(self, session: Session) -> None:
        pass

    def ack(self, *_given: object) -> None:
        pass

    def log(self, *_given: object) -> None:
        pass

    def emit(self, session: Session, emission: Emission) -> None:
        self.emits.append(emission)


async def test_a_runtime_logs_and_emits_for_the_item_that_it_was_given() -> None:
    port, sent = Port(), Sent()
    session = Session(LIVE, Generation("A#1", 1), port, may_claim=True)
    inbox = SessionInbox(session)
    inbox.begins_after(0, b"", b"")
    plain = marked(unmarked("text", b"hello", False), UNMARKED)
    for seq, blob in enumerate((plain, sent.item(), plain), 1):
        assert inbox.accept(item_of(seq, blob))
    logged, given = [], []
    async for item in session.inputs():
        given.append(item)
        logged.append(add_trace(None, "info", {}).get("trace_id"))
        session.emit("word")
        if item.seq == 3:
            session.emit("word", item=given[1])
            break
    assert logged == [None, f"{TRACE:032x}", None]
    assert [each.item for each in port.emits] == [0, 2, 0, 2]


async def test_a_worker_that_takes_no_traces_gets_items_without() -> None:
    peer, sent = Peer(), Sent()
    pulls = Pulls(cast(RedisStore, Mock()), 8, "i1")
    pulls.traces = sent.traces
    item = sent.item()
    put: list[Items] = []
    peer.outbox.put = lambda message, _bytes=0: put.append(message)  # type: ignore[method-assign, assignment]
    for peer.takes_traces in (True, False):
        pulls._act(pull_of(peer, LIVE), (NOTHING, Items(LIVE, 1, 1, 5, [item])))
    assert [message.items for message in put] == [[item], [without_trace(item)]]
    assert sent.names == ["append", "deliver"]
