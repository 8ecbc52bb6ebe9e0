"""A stream whose store has lost items that it had answered: what is kept is sent again, the rest is counted."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dhsched.client import stream as streams
from dhsched.client.models.input import Answer
from dhsched.client.producers import Producers
from dhsched.client.stream import Stream


async def answered(count: int) -> Stream:
    """A stream with `count` items that were answered, and one more that was not."""
    stream = Stream(cast(Any, None), "a", Producers(), in_flight_max=100, deadline_s=1)
    for n in range(count + 1):
        await stream.send(f"item {n + 1}")
    await stream._hear(Answer("a", n=count, seq=count))
    return stream


def gap(n: int, last: int) -> Answer:
    return Answer("a", n=n, problem={"code": "GAP", "status": 409, "last": last, "detail": "send again"})


def owed(stream: Stream) -> list[tuple[int, str]]:
    return [(item.push.n, item.push.text) for item in stream._owed]


async def test_what_the_store_lost_goes_first_again_under_its_numbers() -> None:
    stream = await answered(4)
    name = stream._producer.name
    assert not await stream._hear(gap(5, last=2))
    assert owed(stream) == [(3, "item 3"), (4, "item 4"), (5, "item 5")]
    assert stream.lost == 0 and stream._producer.name == name
    assert await stream._hear(Answer("a", n=5, seq=5)) and owed(stream) == []


async def test_what_is_not_kept_any_more_is_counted_and_the_rest_has_new_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "KEPT_MAX", 2)
    stream = await answered(5)
    name = stream._producer.name
    assert not await stream._hear(gap(6, last=1))
    assert stream.lost == 2
    assert stream._producer.name != name
    assert owed(stream) == [(1, "item 4"), (2, "item 5"), (3, "item 6")]
    await stream.send("item 7")
    assert owed(stream)[-1] == (4, "item 7")


async def test_a_gap_behind_what_is_on_its_way_is_no_loss() -> None:
    stream = await answered(4)
    assert not stream._takes_back(4) and owed(stream) == [(5, "item 5")]


async def test_what_is_kept_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEPT_BYTES_MAX", 100)
    stream = await answered(50)
    assert 0 < stream._kept_bytes <= 100 and len(stream._kept) < 10
