"""A saved state as the API shows it: JSON as it is, bytes as digits, whatever a Worker has sent."""

from typing import Any

import msgspec
import pytest

from dhsched.dispatch.api.saved_state import HEX_BYTES_MAX, saved_state
from dhsched.errors import BadSetting
from dhsched.settings import DispatchSettings
from dhsched.worker.values import raw_state


def shown(raw: bytes) -> Any:
    found = msgspec.json.decode(msgspec.json.encode(saved_state("demo", 7, raw)))
    assert (found.pop("live_id"), found.pop("seq")) == ("demo", 7)
    return found


@pytest.mark.parametrize("value", [{"a": [1, "<b>"]}, [], "text", 0, None, True])
def test_json_is_shown_as_it_is(value: Any) -> None:
    assert shown(raw_state(value)) == {"bytes": len(msgspec.json.encode(value)), "value": value, "hex": None}


@pytest.mark.parametrize("value", [b"abc", b"", b"\0", b"\0j{}", b"\0b", b"\xff" * HEX_BYTES_MAX, b"x" * 65_536])
def test_bytes_are_shown_as_digits_up_to_a_limit(value: bytes) -> None:
    wanted = value[:HEX_BYTES_MAX].hex() if value else None
    assert shown(raw_state(value)) == {"bytes": len(value), "value": None, "hex": wanted}


@pytest.mark.parametrize("broken", [b"{", b"\xff", b"", b"[" * 30_000, b"{} {}"])
def test_what_is_no_json_is_shown_as_bytes(broken: bytes) -> None:
    found = shown(b"\0j" + broken)
    assert found["value"] is None and found["hex"].startswith("006a")


def test_nothing_was_saved() -> None:
    assert shown(b"") == {"bytes": 0, "value": None, "hex": None}


@pytest.mark.parametrize("room", ["room.example", "https://room.example/live", "https://a.example,https://b.example"])
def test_the_room_of_the_console_is_one_origin(room: str) -> None:
    with pytest.raises(BadSetting, match="setting room"):
        DispatchSettings(room=room)
