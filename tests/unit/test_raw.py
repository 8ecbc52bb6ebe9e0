"""The whole state of a cell, read key by key while others write."""

from __future__ import annotations

from typing import Any, cast

from dhsched.store.keys import Keys
from dhsched.store.link.link import Link
from dhsched.store.raw import decode, read_keys

KEYS = Keys("main")


class Deleting:
    """A link to a store that deletes a live's record after its type was asked for, and before its value is."""

    async def call(self, command: str, *_: object, deadline_s: float) -> Any:
        assert deadline_s > 0
        answers: dict[str, Any] = {"SCAN": [b"0", [KEYS.of("live:t/l").encode()]], "TYPE": b"hash", "HGETALL": {}}
        return answers[command]


async def test_a_record_that_is_deleted_meanwhile_is_not_there() -> None:
    found = await read_keys(cast(Link, Deleting()), KEYS)
    assert found == {} and decode(found).lives == {}
