"""The room when the store has another home: what passes on, whom the room asks about, and how often."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest

from dhsched.client.models.lives import PublishingOut
from dhsched.errors import DhschedError
from dhsched.room import rooms as rooms_module
from dhsched.room.fence import Admitted, NeverIssued
from dhsched.room.live_room import Counts, LiveRoom
from dhsched.room.rooms import Rooms
from dhsched.room.settings import RoomSettings
from dhsched.room.upstream import Upstream
from tests.harness.publishers import FRAME, KEYFRAME, Hand, on_air, said

# -- one live


async def test_viewers_see_nothing_of_another_home_if_the_generation_goes_on() -> None:
    counts = Counts()
    room = LiveRoom("default/L", counts)
    hand = on_air(room, 2, "h1")
    assert room.admit(said(2, 2, "h2")) == Admitted()
    assert not room.must_ask(hand, silent_s=0) and room.hear(hand, FRAME)
    assert (counts.take_overs, counts.waited, len(room.shown)) == (1, 0, 1)


async def test_the_publisher_of_the_lost_time_gives_way_to_the_rightful_one() -> None:
    room = LiveRoom("default/L", Counts())
    lost = on_air(room, 2, "h1")
    assert room.admit(said(1, 1, "h2")) == Admitted(), "also below what the room has heard"
    assert room.must_ask(lost, silent_s=0), "nothing more of the other passes unasked"
    rightful = Hand(1)
    room.join(rightful)
    room.want_keyframe()
    assert (rightful.keyframes, lost.keyframes) == (1, 0)
    assert isinstance(room.admit(said(2, 1, "h2")), NeverIssued)
    assert room.must_ask(lost, silent_s=0)
    assert room.hear(rightful, KEYFRAME) and room.on_air == 1
    assert [shown.epoch for shown in room.shown] == [2, 1]


async def test_who_leaves_is_not_admitted_any_more_unless_another_connection_goes_on() -> None:
    room = LiveRoom("default/L", Counts())
    first = on_air(room, 1, "h1")
    second = Hand(1)
    room.join(second)
    assert first.over == "replaced"
    room.leave(first)
    assert not room.must_ask(second, silent_s=0)
    room.leave(second)
    assert room.must_ask(second, silent_s=0)


# -- all lives


class Answers:
    """Dispatch, as the room calls it: an answer for each token, which is the name of a live."""

    def __init__(self) -> None:
        self.home = "h1"
        self.cells: dict[str, tuple[str, str]] = {}
        """The cell of a live and its home, where there are several."""

    async def publishing(self, token: str) -> PublishingOut:
        cell, home = self.cells.get(token, ("", self.home))
        return said(1, 1, home, token, cell)


def made(lives: int, **settings: Any) -> tuple[Rooms, Answers, list[Hand]]:
    """A room whose lives have a publisher each."""
    answers, hands = Answers(), []
    rooms = Rooms(RoomSettings(**settings), cast(Upstream, answers))
    for n in range(lives):
        hands.append(Hand(1, partial(rooms.publishing, f"default/L{n}")))
        rooms.room(f"default/L{n}").join(hands[-1])
    return rooms, answers, hands


async def test_a_change_of_home_is_noted_and_the_first_home_is_none() -> None:
    rooms, answers, _ = made(1)
    await rooms.publishing("default/L0")
    assert not rooms.settling
    for home, changes in (("", False), ("h1", False), ("h2", True)):
        answers.home = home
        await rooms.publishing("default/L0")
        assert rooms.settling is changes, home


async def asked_about(rooms: Rooms, hands: list[Hand], number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the room asks about each publisher in so many rounds of its loop."""
    slept: list[float] = []

    async def sleep(wait_s: float) -> None:
        slept.append(wait_s)
        if len(slept) > number:
            raise DhschedError("that was the last round")

    for hand in hands:
        hand.asked = 0
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        with pytest.raises(DhschedError):
            await rooms.confirm()
    assert len(set(slept)) == 1 and slept[0] <= rooms_module.HOME_S
    return [hand.asked for hand in hands]


@pytest.mark.parametrize(
    ("confirm_s", "number", "asked"),
    [
        (0.5, 3, [3, 3, 3]),  # Each round asks about each live.
        (2, 3, [3, 3, 3]),
        (3, 4, [3, 3, 2]),  # Every second round does; the others ask about one live, in turns.
        (60, 29, [9, 10, 10]),
        (60, 30, [10, 11, 11]),
    ],
)
async def test_some_live_is_asked_about_often_and_every_live_in_time(
    confirm_s: float, number: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms, _, hands = made(3, confirm_s=confirm_s)
    assert await asked_about(rooms, hands, number, monkeypatch) == asked


async def test_after_a_change_of_home_every_live_is_asked_about_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms, answers, hands = made(3, confirm_s=60)
    await rooms.publishing("default/L0")
    answers.home = "h2"
    assert await asked_about(rooms, hands, 5, monkeypatch) == [4, 5, 4], "from the first answer of the new home on"
    assert await asked_about(rooms, hands, 5, monkeypatch) == [5, 5, 5]
    monkeypatch.setattr(rooms_module, "SETTLE_S", 0.0)
    rooms, answers, hands = made(3, confirm_s=60)
    await rooms.publishing("default/L0")
    answers.home = "h2"
    assert sum(await asked_about(rooms, hands, 5, monkeypatch)) == 5, "the minute is over at once"


async def test_a_room_without_publishers_asks_about_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms, _, _ = made(0, confirm_s=60)
    assert await asked_about(rooms, [], 5, monkeypatch) == []


async def test_each_cell_has_a_home_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms, answers, hands = made(4, confirm_s=60)
    answers.cells = {f"default/L{n}": ("ab"[n % 2], f"h-{'ab'[n % 2]}") for n in range(4)}
    for live in answers.cells:
        assert rooms.room(live).admit(await rooms.publishing(live)) == Admitted()
    assert not rooms.settling, "two cells are no change of home"
    assert await asked_about(rooms, hands, 4, monkeypatch) == [2, 2, 2, 2], "one live of each cell, in turns"
    answers.cells["default/L1"] = ("b", "h-new")
    await rooms.publishing("default/L0")
    assert not rooms.settling
    await rooms.publishing("default/L1")
    assert rooms.settling
