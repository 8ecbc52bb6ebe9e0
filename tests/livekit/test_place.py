"""A generation in its room, on a room of the test: what it does while the SDK waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from livekit import rtc

from dhsched.errors import DhschedError
from dhsched.livekit.joining import Access, Place
from dhsched.livekit.seats import Call

pytestmark = pytest.mark.livekit
PATIENCE_S = 60


def place_in(set_attributes: Callable[[dict[str, str]], Awaitable[None]]) -> Place:
    async def disconnect() -> None:
        pass

    room = SimpleNamespace(
        on=lambda event, act: None,
        local_participant=SimpleNamespace(set_attributes=set_attributes),
        remote_participants={},
        disconnect=disconnect,
    )
    call = Call(room="r", name="anna", agent="agent")
    return Place(cast(rtc.Room, room), Access("ws://127.0.0.1:1", "key", "s" * 32), call, "anna", 2)


async def test_an_answer_that_the_sdk_misses_keeps_nobody_from_publishing() -> None:
    shown: list[dict[str, str]] = []

    async def never_answered(attributes: dict[str, str]) -> None:
        shown.append(attributes)
        await asyncio.Event().wait()

    place = place_in(never_answered)
    async with asyncio.timeout(PATIENCE_S):
        await place.take()
        assert shown == [{"dhsched.claimed": "1", "lk.publish_on_behalf": "agent"}] and not place.disconnected.is_set()
        await place.leave()


async def test_a_refusal_at_once_is_raised() -> None:
    async def refused(_: dict[str, str]) -> None:
        raise DhschedError("not allowed")

    place = place_in(refused)
    with pytest.raises(DhschedError, match="not allowed"):
        await place.take()
    await place.leave()


async def test_a_late_refusal_ends_the_stay() -> None:
    refuse = asyncio.Event()

    async def refused_late(_: dict[str, Any]) -> None:
        await refuse.wait()
        raise DhschedError("not allowed")

    place = place_in(refused_late)
    async with asyncio.timeout(PATIENCE_S):
        await place.take()
        refuse.set()
        await place.disconnected.wait()
    assert place.reason == "its seat is not shown as claimed: not allowed"
    await place.leave()
