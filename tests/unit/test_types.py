"""Ids: what is refused, with a message that names the field, and what a name is made of."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.errors import BadId, DhschedError
from dhsched.types import Generation, check_id, check_live, check_worker, live_key, slot_tag, split_tag

GOOD = ["a", "A9", "live-1", "a.b", "_x", "~x", "-x", "a" * 64, "0"]
BAD = {
    "empty": "",
    "65 characters": "a" * 65,
    "10 kB": "a" * 10_000,
    "space": "a b",
    "newline": "a\n",
    "newline alone": "\n",
    "carriage return": "a\rb",
    "NUL": "a\0b",
    "escape": "\x1b[2J",
    "delete": "a\x7f",
    "opening brace": "{main}",
    "closing brace": "a}",
    "at": "a@1",
    "colon": "a:b",
    "hash": "a#1",
    "slash": "a/b",
    "backslash": "a\\b",
    "quote": 'a"b',
    "star": "a*",
    "question mark": "a?",
    "percent": "a%20b",
    "leading dot": ".a",
    "path": "../../etc",
    "umlaut": "ä",
    "e with a combining accent": "e\u0301",
    "full-width digit": "１",
    "arabic digit": "a٣",
    "emoji": "a😀",
    "zero width space": "a\u200bb",
    "right to left": "a\u202eb",
    "lone surrogate": "a\ud800",
}


@pytest.mark.parametrize("value", GOOD)
def test_an_id_is_returned_as_it_is(value: str) -> None:
    assert check_id(value, "digital_id") == value


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_what_is_no_id_is_refused_with_the_name_of_the_field(value: str) -> None:
    with pytest.raises(BadId, match=r"^digital_id ") as error:
        check_id(value, "digital_id")
    assert isinstance(error.value, DhschedError | ValueError)
    message = str(error.value)
    assert len(message) < 200
    assert message.isprintable(), "a message goes to logs and terminals: no control characters in it"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "room is empty; give 1 to 64 characters of A-Z a-z 0-9 . _ ~ -"),
        ("a" * 65, "room has 65 characters, at most 64 are allowed"),
        ("a@b", "room contains '@'; only A-Z a-z 0-9 . _ ~ - are allowed, and no dot at its start"),
        ("a\n", r"room contains '\n'; only A-Z a-z 0-9 . _ ~ - are allowed, and no dot at its start"),
        (".a", "room contains '.'; only A-Z a-z 0-9 . _ ~ - are allowed, and no dot at its start"),
        (7, "room must be a string, not int"),
        (None, "room must be a string, not NoneType"),
        (b"a", "room must be a string, not bytes"),
    ],
)
def test_the_message_says_what_is_wrong_and_what_is_allowed(value: object, message: str) -> None:
    with pytest.raises(BadId) as error:
        check_id(value, "room")
    assert str(error.value) == message


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_both_halves_of_a_live_are_checked(value: str) -> None:
    with pytest.raises(BadId, match=r"^tenant "):
        live_key(value, "a")
    with pytest.raises(BadId, match=r"^live_id "):
        live_key("t", value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("L", "live 'L' has no tenant; write tenant/live_id"),
        ("", "live '' has no tenant; write tenant/live_id"),
        ("x" * 10_000, f"live '{'x' * 80}' has no tenant; write tenant/live_id"),
        ("/L", "tenant is empty; give 1 to 64 characters of A-Z a-z 0-9 . _ ~ -"),
        ("t/", "live_id is empty; give 1 to 64 characters of A-Z a-z 0-9 . _ ~ -"),
        ("t/L/M", "live_id contains '/'; only A-Z a-z 0-9 . _ ~ - are allowed, and no dot at its start"),
        ("t/L@1", "live_id contains '@'; only A-Z a-z 0-9 . _ ~ - are allowed, and no dot at its start"),
        (7, "live must be a string, not int"),
    ],
)
def test_what_is_no_live_is_refused(value: object, message: str) -> None:
    with pytest.raises(BadId) as error:
        check_live(value)
    assert str(error.value) == message


def test_a_live_is_its_tenant_and_its_id() -> None:
    assert live_key("t", "L") == "t/L"
    assert check_live("t/L") == "t/L"


@pytest.mark.parametrize("value", ["A#1", f"gpu-7.rack~2#{2**50}"])
def test_a_worker_id_is_a_name_and_the_number_of_a_boot(value: str) -> None:
    assert check_worker(value) == value


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("A", "worker 'A' is not a WorkerID; it looks like name#7 and comes from register_worker"),
        ("A#", "worker 'A#' is not a WorkerID"),
        ("A#x", "worker 'A#x' is not a WorkerID"),
        ("A#-1", "worker 'A#-1' is not a WorkerID"),
        ("A#1.5", "worker 'A#1.5' is not a WorkerID"),
        ("A#٣", "worker 'A#٣' is not a WorkerID"),
        ("A#²", "worker 'A#²' is not a WorkerID"),
        ("A#1\n", r"worker 'A#1\n' is not a WorkerID"),
        (f"A#{2**50 + 1}", "is not a WorkerID"),
        ("A" * 10_000, "is not a WorkerID"),
        ("#1", "worker name is empty"),
        ("A B#1", "worker name contains ' '"),
        ("A#1#2", "worker name contains '#'"),
        ("{a}#1", "worker name contains '{'"),
        (7, "worker must be a string, not int"),
    ],
)
def test_what_is_no_worker_id_is_refused(value: object, complaint: str) -> None:
    with pytest.raises(BadId) as error:
        check_worker(value)
    assert complaint in str(error.value)
    assert len(str(error.value)) < 250


# Every ASCII character and one of each further kind: hypothesis needs seconds to set up all of Unicode.
CHARACTERS = [*map(chr, range(128)), "ä", "１", "٣", "\u0301", "\u2028", "\ud800", "😀"]


@settings(derandomize=True)
@given(st.text(st.sampled_from(CHARACTERS), max_size=80) | st.text(st.sampled_from("aZ09._~-"), max_size=70))
def test_whatever_passes_has_no_character_that_a_key_or_a_tag_is_built_with(value: str) -> None:
    try:
        check_id(value, "x")
    except BadId:
        return
    assert 1 <= len(value.encode()) <= 64
    assert not set(value) & set(" {}:@#/\\\"'*?[]\n\r\t\0")


@settings(derandomize=True)
@given(st.text(st.sampled_from("aZ09_~-"), min_size=1, max_size=64), st.integers(0, 2**50))
def test_a_tag_names_its_live_and_number(live_id: str, number: int) -> None:
    live = live_key("t", live_id)
    assert split_tag(slot_tag(live, number)) == (live, number)


def test_a_generation_is_written_as_worker_at_epoch() -> None:
    assert str(Generation("A#1", 3)) == "A#1@3"
