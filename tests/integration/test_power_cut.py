"""The store loses its last second, and later input gets the numbers of what is gone: all of it is played all the same.

The append-only file is cut back to where it ended some steps ago, as a power cut with `appendfsync everysec` does it.
Everything else goes on running, and has seen what the store has forgotten.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.harness.fleet import until, until_so
from tests.harness.standing import Standing, standing


async def acked(f: Standing) -> dict[str, int]:
    return {live: (await f.get(f"/v1/lives/{live}"))["acked"] for live in await f.lives()}


async def test_input_that_takes_the_numbers_of_lost_input_is_played(tmp_path: Path) -> None:
    async with standing(tmp_path, workers=2, lives=3, ttl_s=30) as f:
        lives = [*await f.lives()]
        for live in lives:
            assert (await f.push(live, "before"))[0] == 200
        await until(lambda: all("before" in f.record.texts(live) for live in lives), "the items before")
        await until_so(lambda: acked(f), lambda found: set(found.values()) == {1}, "their acks")
        kept = f.append_only_file().stat().st_size
        lost = [f"lost {n}" for n in range(3)]
        for live in lives:
            for text in lost:
                assert (await f.push(live, text))[0] == 200
        await until(lambda: all(lost[-1] in f.record.texts(live) for live in lives), "the items that will be lost")
        await f.cut_power(kept)
        after = [f"after {n}" for n in range(10)]
        for live in lives:
            for text in after:
                push = partial(f.push, live, text)
                await until_so(push, lambda said: said[0] == 200, text)
        await until(
            lambda: all(set(after) <= set(f.record.texts(live)) for live in lives),
            "everything accepted after the cut",
            60,
        )
        await until_so(lambda: acked(f), lambda found: set(found.values()) == {11}, "every ack", 60)
        for live in lives:
            played = [text for text in f.record.texts(live) if text.startswith("after")]
            assert list(dict.fromkeys(played)) == after, "in order"
            assert (await f.get(f"/v1/lives/{live}"))["dropped"]["poison"] == 0, "and no item was blamed"
