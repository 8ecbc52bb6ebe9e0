"""An avatar in a whole deployment: it speaks, acks, publishes, and another Worker goes on where it stood."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.avatar_extra import require_avatar

require_avatar()

from dhsched.avatar.runtime import avatar
from tests.harness.acked import until_acked
from tests.harness.fleet import Fleet, fleet, until
from tests.harness.room_server import Room, running


async def test_what_was_spoken_is_acked_and_a_move_goes_on_in_the_same_room(tmp_path: Path) -> None:
    async with running(Room()) as room, fleet(tmp_path, room=room.url) as f:
        await f.start_worker(avatar, "w1")
        await f.start_worker(avatar, "w2")
        first = await f.create("a")
        await f.push("a", "Good day. This is the first Worker.", boundary=True)
        await until(lambda: any(frame[0] == 1 for frame in room.frames), "sound", wait_s=30)
        assert (await f.get("/v1/lives/a"))["acked"] == 0, "it is still being spoken"
        await until_acked(f, "a", 1)
        assert await remembered_by(f, "a") == {
            "items": 1,
            "sentences": 2,
            "last": "Good day. This is the first Worker.",
        }
        status, moved = await f.reassign("a")
        assert status == 200 and moved["worker"] != first["worker"]
        await f.push("a", "And this is the second one.", boundary=True)
        await until_acked(f, "a", 2)
        assert (await remembered_by(f, "a"))["sentences"] == 3
    assert [begin["epoch"] for begin in room.begins] == [first["epoch"], moved["epoch"]]
    assert len({*room.tokens}) == 2, "each generation has a token of its own"


async def remembered_by(f: Fleet, live: str) -> dict[str, object]:
    store = f.controllers[0].context.store
    saved = await store.link.call("HGET", store.keys.of("data", f"default/{live}"), "saved")
    found: dict[str, object] = json.loads(saved)
    return found
