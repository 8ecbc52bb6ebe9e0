"""All lives of this room process, and the limits on lives and viewers."""

from __future__ import annotations

import asyncio
import time

import structlog

from dhsched.room.live_room import Counts, LiveRoom
from dhsched.room.rates import Rates
from dhsched.room.settings import RoomSettings
from dhsched.room.upstream import Upstream
from dhsched.types import live_key
from dhsched.web import Problem

log = structlog.get_logger(__name__)

CONFIRM_AT_ONCE_MAX = 16  # Further lives wait until Dispatch has answered about one of these.
IDLE_S = 600.0  # A live without publisher and viewer is forgotten after this, and its timeline with it.


class Rooms:
    """The lives, limits and connections that all parts of a room process share."""

    def __init__(self, settings: RoomSettings, upstream: Upstream) -> None:
        self.settings = settings
        self.upstream = upstream
        self.counts = Counts()
        self.rates = Rates(settings)
        self.publishers = 0
        self.connecting = 0  # Viewers whose offer is being answered.
        self._lives: dict[str, LiveRoom] = {}

    @property
    def viewers(self) -> int:
        return sum(len(room.viewers) for room in self._lives.values())

    @property
    def on_air(self) -> int:
        return sum(1 for room in self._lives.values() if room.on_air)

    def __len__(self) -> int:
        return len(self._lives)

    def live(self, live_id: str) -> str:
        return live_key(self.settings.tenant, live_id)

    def find(self, live: str) -> LiveRoom | None:
        return self._lives.get(live)

    def room(self, live: str) -> LiveRoom:
        """Return the live's room, and make it if there is none. Raise Problem BUSY past `lives_max`."""
        found = self._lives.get(live)
        if found is None:
            self._forget_idle()
            if len(self._lives) >= self.settings.lives_max:
                raise Problem(
                    "BUSY",
                    f"this room has {len(self._lives)} lives, at most {self.settings.lives_max} are taken; use another",
                )
            found = self._lives[live] = LiveRoom(live, self.counts)
        return found

    def check_viewers(self) -> None:
        """Raise Problem BUSY unless one more viewer fits; viewers that are connecting count."""
        if self.viewers + self.connecting >= self.settings.viewers_max:
            raise Problem(
                "BUSY",
                f"this room has {self.viewers} viewers, at most {self.settings.viewers_max} are taken; try again later",
                viewers_max=self.settings.viewers_max,
            )

    async def confirm(self) -> None:
        """Ask Dispatch every `confirm_s` about each live that is published or watched, until cancelled.

        A frozen, cut off or hostile Worker never reports that its live has ended, so the room asks.
        """
        turns = asyncio.Semaphore(CONFIRM_AT_ONCE_MAX)

        async def one(room: LiveRoom) -> None:
            async with turns:
                await self._confirm(room)

        while True:
            await asyncio.sleep(self.settings.confirm_s)
            shown = [room for room in self._lives.values() if room.in_use or room.on_air]
            for failed in await asyncio.gather(*map(one, shown), return_exceptions=True):
                if isinstance(failed, BaseException):
                    log.error("cannot confirm a live", reason=repr(failed))

    async def _confirm(self, room: LiveRoom) -> None:
        publishers = room.publishers
        for publisher in publishers:
            await publisher.confirm()
        if publishers:
            return
        try:
            ended = (await self.upstream.owner(room.live.partition("/")[2])).state == "ended"
        except Problem as problem:
            ended = problem.code == "NOT_FOUND"
        if ended:
            await room.end()

    def _forget_idle(self) -> None:
        full = len(self._lives) >= self.settings.lives_max
        now = time.monotonic()
        for live, room in [*self._lives.items()]:
            if not room.in_use and (full or now - room.idle_since > IDLE_S):
                del self._lives[live]

    async def close(self) -> None:
        viewers = [viewer for room in self._lives.values() for viewer in room.viewers.values()]
        await asyncio.gather(*(viewer.close() for viewer in viewers), return_exceptions=True)
