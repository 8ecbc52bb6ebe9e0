"""Where the Infer-Controllers are: each says so in the store, once a second, and Dispatch tells the Workers.

`controllers` is a zset of `id url` by the store's own time, so no clock of another machine is compared: who has not
said so for `AGE_MAX_MS` is not listed. It is a hint. A Worker that is sent to a controller that is gone finds no
connection and goes to another one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from dhsched.store.keys import Keys
from dhsched.store.link import Link
from dhsched.types import check_id

ANNOUNCE_S = 1.0
AGE_MAX_MS = 5_000  # Older entries are not listed ...
FORGET_MS = 60_000  # ... and these are removed, by whoever announces itself next.
CONTROLLERS_MAX = 64  # Listed; each Worker has a connection to each.


@dataclass(frozen=True, slots=True)
class Controller:
    """One Infer-Controller: its id, and the URL at which Workers reach it."""

    id: str
    url: str

    @property
    def entry(self) -> str:
        return f"{check_id(self.id, 'controller')} {self.url}"


async def announce(link: Link, keys: Keys, controller: Controller) -> None:
    """Say that this controller is there."""
    await link.run("announce", [keys.cell], [controller.entry, FORGET_MS], deadline_s=ANNOUNCE_S)


async def withdraw(link: Link, keys: Keys, controller: Controller) -> None:
    """Say that this controller is stopping."""
    await link.call("ZREM", keys.of("controllers"), controller.entry)


async def list_controllers(link: Link, keys: Keys) -> list[Controller]:
    """Who has said within AGE_MAX_MS that it is there, in a stable order."""
    # Together: when the first one fails, the other one's failure would be nobody's.
    time, found = await asyncio.gather(
        link.call("TIME"), link.call("ZRANGE", keys.of("controllers"), 0, -1, "WITHSCORES")
    )
    now_ms = _ms(time)
    entries = [(member.decode(), float(score)) for member, score in found]
    fresh = sorted(entry for entry, at in entries if now_ms - at <= AGE_MAX_MS)
    return [Controller(*entry.split(" ", 1)) for entry in fresh[:CONTROLLERS_MAX]]


def _ms(time: Any) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000
