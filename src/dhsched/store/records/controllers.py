"""The list of Infer-Controllers: each announces itself once a second, and Dispatch passes the list to the Workers.

`controllers` is a zset of `id url` by the store's own time, so no clock of another machine is compared: a controller
that has not announced itself for `AGE_MAX_MS` is not listed. The list is a hint: a Worker that is sent to a controller
that is gone finds no connection and goes to another one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dhsched.store.records.part import Part
from dhsched.store.records.server import ServerRecords
from dhsched.types import check_id

ANNOUNCE_S = 1.0  # Time between two announcements of a controller.
AGE_MAX_MS = 5_000  # Older entries are not listed ...
FORGET_MS = 60_000  # ... and entries of this age are removed by the next announcement.
CONTROLLERS_MAX = 64  # Further controllers are not listed; each Worker has a connection to each listed one.


@dataclass(frozen=True, slots=True)
class Controller:
    """One Infer-Controller: its id, and the URL at which Workers reach it."""

    id: str
    url: str

    @property
    def entry(self) -> str:
        return f"{check_id(self.id, 'controller')} {self.url}"


class ControllerRecords(Part):
    """The list of Infer-Controllers of a cell."""

    async def announce(self, controller: Controller) -> None:
        """List the controller for the next AGE_MAX_MS."""
        await self._run("announce", controller.entry, FORGET_MS, deadline_s=ANNOUNCE_S)

    async def withdraw(self, controller: Controller) -> None:
        """Remove a controller that stops from the list."""
        await self._call("ZREM", "controllers", "", controller.entry)

    async def all(self) -> list[Controller]:
        """Return the controllers that announced themselves within AGE_MAX_MS, in a stable order."""
        # Gathered: if the first call fails, the failure of the other must be retrieved, too.
        now_ms, found = await asyncio.gather(
            ServerRecords(self._link).now_ms(), self._call("ZRANGE", "controllers", "", 0, -1, "WITHSCORES")
        )
        entries = [(member.decode(), float(score)) for member, score in found]
        fresh = sorted(entry for entry, at in entries if now_ms - at <= AGE_MAX_MS)
        return [Controller(*entry.split(" ", 1)) for entry in fresh[:CONTROLLERS_MAX]]
