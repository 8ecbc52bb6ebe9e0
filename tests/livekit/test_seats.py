"""Which participant is the current generation of a live."""

from __future__ import annotations

from typing import Any

import pytest

from dhsched.errors import BadValue
from dhsched.livekit.seats import Call, Seat, call_of, current, lower, seat_of


def seat(epoch: int, *, live: str = "L", claimed: bool = True) -> Seat:
    return Seat(f"anna~{epoch}", live, epoch, claimed)


def test_a_participant_with_a_live_and_an_epoch_has_a_seat() -> None:
    attributes = {"dhsched.live": "L", "dhsched.epoch": "2"}
    assert seat_of("anna~2", attributes) == seat(2, claimed=False)
    assert seat_of("anna~2", {**attributes, "dhsched.claimed": "1"}) == seat(2)


@pytest.mark.parametrize("epoch", ["", "two", "-2", "2.0", "²"])
def test_a_participant_without_a_whole_epoch_has_none(epoch: str) -> None:
    assert seat_of("anna", {"dhsched.live": "L", "dhsched.epoch": epoch}) is None


def test_the_highest_claimed_epoch_of_the_live_is_the_current_one() -> None:
    seats = [seat(2), seat(9), seat(10), seat(11, claimed=False), seat(12, live="M")]
    assert current(seats, "L") == seat(10)
    assert current(seats, "N") is None
    assert lower(seats, "L", 10) == [seat(2), seat(9)]


def test_a_live_names_its_call_in_its_metadata() -> None:
    call = Call("room-1", "anna", "agent")
    assert call_of(call.metadata, "x") == call
    assert call_of({"livekit": {"room": "room-1"}}, "anna").identity(3) == "anna~3"


@pytest.mark.parametrize("metadata", [{}, {"livekit": "room-1"}, {"livekit": {}}, {"livekit": {"room": 7}}])
def test_a_live_without_a_room_is_refused_with_a_reason(metadata: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match="livekit"):
        call_of(metadata, "anna")
