"""What a process says of homes that the data does not have: once, and no more calls than can be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dhsched.store.homes import Homes


async def enter(homes: Homes, pos: int, *rows: str) -> None:
    """Enter data at this position with these homes, the last of which is the server's."""

    async def run(script: str, keys: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        return [b"ENTERED", 1, rows[-1].split()[0].encode(), 0, pos, *(row.encode() for row in rows)]

    await homes.enter(run)


async def told_in_a_lost_home() -> Homes:
    """Home b began at 100, the process was told 110 there, and then the data never had b: it has 104 calls, in a."""
    homes = Homes("main")
    await enter(homes, 100, "a 0 1", "b 100 1")
    homes.reader.pos = 110
    await enter(homes, 104, "a 0 1", "c 104 1")
    return homes


async def test_a_home_that_is_lost_whole_is_said_once() -> None:
    homes = await told_in_a_lost_home()
    assert [loss.home for loss in homes.losses] == ["b"]
    await enter(homes, 104, "a 0 1", "c 104 1")
    assert [loss.home for loss in homes.losses] == ["b"]


async def test_calls_before_a_lost_home_began_are_not_counted_as_lost() -> None:
    homes = await told_in_a_lost_home()
    assert homes.lost_calls == 10
