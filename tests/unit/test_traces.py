"""Traces: which spans a generation has, whose trace they are part of, and what a caller's header may be."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from dhsched.client.models.lives import HistoryRow
from dhsched.dispatch.telemetry.handoffs import Begun
from dhsched.dispatch.telemetry.traces import attributes_of, phases_of, trace_id_of
from dhsched.errors import BadSetting
from dhsched.web.logs import add_trace
from dhsched.web.otlp import Phase, open_sender
from dhsched.web.traceparent import GIVEN, LENGTH, Parent, read_traceparent

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def row(**given: Any) -> HistoryRow:
    known: dict[str, Any] = {
        "epoch": 2,
        "worker": "b#2",
        "source": "a#1",
        "cause": "recover",
        "need": "lost",
        "operation": "op-1",
        "committed_at_ms": 10_000,
        "claimed_at_ms": 10_017,
        "first_ack_at_ms": 10_317,
        "detect_ms": None,
        "place_ms": None,
        "wait_ms": None,
        "claim_ms": 17,
        "first_ack_ms": 300,
        "reason": "",
    }
    return HistoryRow(**{**known, **given})


BEGUN = Begun("t/a", 2, "recover", took_ms=4)


def test_a_recovery_goes_from_the_silence_to_the_first_ack() -> None:
    assert phases_of(BEGUN, row(detect_ms=1_000, place_ms=600, wait_ms=500)) == [
        Phase("recovery", 8_400, 10_317),
        Phase("detect", 8_400, 9_400),
        Phase("place", 9_400, 10_000),
        Phase("wait", 9_500, 10_000, within=2),
        Phase("claim", 10_000, 10_017),
        Phase("first ack", 10_017, 10_317),
    ]


def test_a_create_begins_with_the_question_to_the_store_and_a_move_with_its_slot() -> None:
    created = phases_of(BEGUN, row(cause="create", first_ack_ms=None))
    assert created == [Phase("create", 9_996, 10_017), Phase("place", 9_996, 10_000), Phase("claim", 10_000, 10_017)]
    moved = phases_of(BEGUN._replace(reserved_at_ms=9_000), row(cause="drain", claim_ms=None))
    assert moved == [Phase("move", 9_000, 10_000), Phase("prepare", 9_000, 10_000)]
    ahead = phases_of(BEGUN._replace(reserved_at_ms=11_000), row(cause="rebalance", claim_ms=None))
    assert ahead[0] == Phase("move", 10_000, 10_000), "a clock that was set back makes no span of less than nothing"


def test_a_span_says_which_generation_it_is_of() -> None:
    assert attributes_of("t/a", row(source="", need="")) == {
        "dhsched.live": "t/a",
        "dhsched.epoch": 2,
        "dhsched.worker": "b#2",
        "dhsched.cause": "recover",
        "dhsched.operation": "op-1",
    }


def test_a_trace_without_a_caller_is_named_by_its_operation() -> None:
    assert trace_id_of("op-1") == trace_id_of("op-1") != trace_id_of("op-2")
    assert 0 < trace_id_of("op-1") < 2**128


async def test_without_the_extra_the_setting_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(BadSetting, match=r"pip install 'dhsched\[otel\]'"):
        async with open_sender("http://127.0.0.1:9", "dhsched-dispatch", "d1"):
            pass


def test_a_line_of_a_traced_request_has_the_id_of_its_trace() -> None:
    assert add_trace(None, "info", {"event": "x"}) == {"event": "x"}
    before = GIVEN.set(GOOD)
    try:
        assert add_trace(None, "info", {"event": "x"})["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
        GIVEN.set("nonsense")
        assert add_trace(None, "info", {"event": "x"}) == {"event": "x"}
    finally:
        GIVEN.reset(before)


def test_a_callers_header_is_read_or_left_alone() -> None:
    assert len(GOOD) == LENGTH
    assert read_traceparent(GOOD) == Parent(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, True)
    unsampled = read_traceparent(GOOD[:-1] + "0")
    assert unsampled is not None and not unsampled.sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        GOOD + "0",
        GOOD[:-1],
        GOOD.upper(),
        "01" + GOOD[2:],
        GOOD.replace("b7ad6b7169203331", "0" * 16),
        "é" * 55,
    ],
)
def test_a_header_that_is_none_names_no_caller(text: str) -> None:
    assert read_traceparent(text) is None
