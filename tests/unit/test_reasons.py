"""Why a runtime ended: bounded, one printable line, the message first and then where."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.errors import ChildFailed
from dhsched.ownership.items import dead_letter, read_dead_letter
from dhsched.types import REASON_BYTES_MAX, clean_reason
from dhsched.worker.reasons import ending_of, reason_of

CHARACTERS = (
    st.sampled_from(" \n\t\0\x1b\x85\u2028aZ09ä€🙂")
    | st.integers(0, 0xD7FF).map(chr)
    | st.integers(0xE000, 0x10FFFF).map(chr)
)
RUNS = st.lists(st.tuples(CHARACTERS, st.integers(1, 3) | st.integers(1, REASON_BYTES_MAX)), max_size=20)
"""Each character so many times: long texts at little cost. (Hypothesis makes a table of Unicode for `st.text`.)"""


@settings(derandomize=True)
@given(RUNS.map(lambda runs: "".join(character * times for character, times in runs)))
def test_whatever_is_said_becomes_one_bounded_line(said: str) -> None:
    clean = clean_reason(said)
    assert clean.isprintable() and len(clean.encode()) <= REASON_BYTES_MAX
    assert clean_reason(clean) == clean == clean.strip()
    assert read_dead_letter(dead_letter(b"T\0 item", clean)) == (b"T\0 item", clean)


def test_a_letter_that_was_written_without_a_reason_is_the_item() -> None:
    assert read_dead_letter(b"tfirst\nsecond") == (b"tfirst\nsecond", "")


def caught(error: BaseException, depth: int = 0) -> BaseException:
    try:
        if depth:
            raise caught(error, depth - 1)
        raise error
    except BaseException as raised:
        return raised


def test_the_exception_comes_first_and_then_where_the_innermost_first() -> None:
    said = reason_of(caught(KeyError("weights"), depth=1))
    assert said.startswith("KeyError: 'weights' (test_reasons.py:") and said.endswith(" caught)")


def test_a_long_message_leaves_room_for_where_it_was_raised() -> None:
    said = reason_of(caught(ValueError("ä" * 5_000), depth=30))
    assert len(said.encode()) <= REASON_BYTES_MAX and "test_reasons.py:" in said


def test_a_group_is_opened_and_ours_needs_no_place() -> None:
    group = BaseExceptionGroup("two", [BaseExceptionGroup("one", [caught(OSError("no device"))])])
    assert reason_of(caught(group)).startswith("OSError: no device (")
    assert reason_of(caught(ChildFailed("sh ended with status 7"))) == "ChildFailed: sh ended with status 7"


def test_an_exception_that_cannot_be_read_is_named_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert reason_of(Broken()) == "Broken: its message cannot be read"


@pytest.mark.parametrize(
    ("status", "words", "said"),
    [
        (3, b"", "child ended with status 3"),
        (0, b"bye\n\n", "child ended with status 0: bye"),
        (-signal.SIGSEGV, b"a\x1b[1m\nb", "child was killed by SIGSEGV: a [1m b"),
        (-63, b"", "child was killed by signal 63"),
        (1, b"x" * 4_000 + "ü: the end".encode(), "child ended with status 1: " + "x" * 289 + "ü: the end"),
    ],
)
def test_a_childs_end_is_its_status_and_its_last_words(status: int, words: bytes, said: str) -> None:
    assert ending_of("/opt/bin/child", status, words) == said
