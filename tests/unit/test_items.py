"""How an item lies in the queue: what goes in comes out, and the sign alone says where the boundaries are."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.ownership.items import (
    BOUNDARIES,
    INTERRUPT_WITH_CONFIG,
    SIGNS,
    Item,
    mark_of,
    marked,
    new_mark,
    read,
    stored,
    unmarked,
    with_config,
)
from dhsched.types import MARK_BYTES, Kind

PAYLOADS = [b"", b"hello", "grüße".encode(), b"\0\xff", b"5:x", b":", b"J3:abc", b"T"]


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize(("kind", "boundary"), SIGNS)
def test_an_item_is_its_sign_its_mark_and_its_payload(kind: Kind, boundary: bool, payload: bytes) -> None:
    blob = marked(unmarked(kind, payload, boundary), b"01234567")
    assert blob == stored(kind, payload, boundary, b"01234567") and mark_of(blob) == b"01234567"
    item = read(blob)
    assert (item.kind, item.payload) == (kind, payload)
    assert item.boundary == (boundary or kind == "interrupt")
    assert item.config == (payload if kind == "config" else None)


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("config", PAYLOADS)
def test_an_interrupt_brings_the_config_that_it_passed_over(payload: bytes, config: bytes) -> None:
    assert read(with_config(payload, config)) == Item("interrupt", payload, True, config)


@settings(derandomize=True)
@given(st.binary(max_size=50).filter(lambda payload: payload[-32:-31] != b"\xff"), st.binary(max_size=50))
def test_no_payload_and_no_config_can_be_taken_for_the_other(payload: bytes, config: bytes) -> None:
    item = read(with_config(payload, config))
    assert (item.payload, item.config) == (payload, config)


def test_every_sign_is_one_byte_and_no_two_kinds_share_one() -> None:
    signs = {kind: {sign for (other, _), sign in SIGNS.items() if other == kind} for kind, _ in SIGNS}
    signs["interrupt"].add(INTERRUPT_WITH_CONFIG)
    every = [sign for kind in signs.values() for sign in kind]
    assert len(every) == len(set(every))
    assert {len(sign) for sign in every} == {1}


def test_marks_have_one_length_and_differ() -> None:
    rng = Random(3)
    marks = {new_mark(rng) for _ in range(1_000)}
    assert len(marks) == 1_000 and {len(mark) for mark in marks} == {MARK_BYTES}


def test_the_boundaries_are_the_capital_signs() -> None:
    """The store's step looks at this one byte, and at nothing else of an item."""
    every = [*SIGNS.values(), INTERRUPT_WITH_CONFIG]
    assert {sign for sign in every if sign[0] in BOUNDARIES} == {sign for sign in every if sign.isupper()}


@pytest.mark.parametrize("blob", [b"x", b"\xff", b"0"])
def test_a_sign_that_nobody_writes_is_not_taken_for_something_else(blob: bytes) -> None:
    with pytest.raises(KeyError):
        read(blob)
