"""How an item lies in the queue: what goes in comes out, and the mark alone says where the boundaries are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.ownership.items import BOUNDARIES, INTERRUPT_WITH_CONFIG, MARKS, Item, read, with_config
from dhsched.types import Kind

PAYLOADS = [b"", b"hello", "grüße".encode(), b"\0\xff", b"5:x", b":", b"J3:abc", b"T"]


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize(("kind", "boundary"), MARKS)
def test_an_item_is_its_mark_and_its_payload(kind: Kind, boundary: bool, payload: bytes) -> None:
    item = read(MARKS[kind, boundary] + payload)
    assert (item.kind, item.payload) == (kind, payload)
    assert item.boundary == (boundary or kind == "interrupt")
    assert item.config == (payload if kind == "config" else None)


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("config", PAYLOADS)
def test_an_interrupt_brings_the_config_that_it_passed_over(payload: bytes, config: bytes) -> None:
    assert read(with_config(payload, config)) == Item("interrupt", payload, True, config)


@settings(derandomize=True)
@given(st.binary(max_size=50), st.binary(max_size=50))
def test_no_payload_and_no_config_can_be_taken_for_the_other(payload: bytes, config: bytes) -> None:
    item = read(with_config(payload, config))
    assert (item.payload, item.config) == (payload, config)


def test_every_mark_is_one_byte_and_no_two_kinds_share_one() -> None:
    marks = {kind: {mark for (other, _), mark in MARKS.items() if other == kind} for kind, _ in MARKS}
    marks["interrupt"].add(INTERRUPT_WITH_CONFIG)
    every = [mark for kind in marks.values() for mark in kind]
    assert len(every) == len(set(every))
    assert {len(mark) for mark in every} == {1}


def test_the_boundaries_are_the_capital_marks() -> None:
    """The store's step looks at this one byte, and at nothing else of an item."""
    every = [*MARKS.values(), INTERRUPT_WITH_CONFIG]
    assert {mark for mark in every if mark[0] in BOUNDARIES} == {mark for mark in every if mark.isupper()}


@pytest.mark.parametrize("stored", [b"x", b"\xff", b"0"])
def test_a_mark_that_nobody_writes_is_not_taken_for_something_else(stored: bytes) -> None:
    with pytest.raises(KeyError):
        read(stored)
