"""All lives of this room process, and the limits on lives and viewers."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable

import structlog
from aiohttp import web

from dhsched.client.models.lives import PublishingOut
from dhsched.room.live_room import Counts, LiveRoom
from dhsched.room.places import Places
from dhsched.room.rates import Rates
from dhsched.room.settings import RoomSettings, ice_servers
from dhsched.room.upstream import Upstream
from dhsched.room.viewer_gate import KEYS_S, ViewerGate
from dhsched.room.whip import WhipOutputs
from dhsched.types import live_key
from dhsched.web import Problem
from dhsched.web.proxies import client_address, proxies, site_of

log = structlog.get_logger(__name__)

CONFIRM_AT_ONCE_MAX = 16  # Further lives wait until Dispatch has answered about one of these.
HOME_S = 2.0  # Dispatch is asked about a live of each cell this often: only its answers tell of another home.
SETTLE_S = 60.0  # For this long after a change of home it is asked about all lives: a slow answer may undo the change.
IDLE_S = 600.0  # A live without publisher and viewer is forgotten after this, and its timeline with it.


class Rooms:
    """The lives, limits and connections that all parts of a room process share."""

    def __init__(self, settings: RoomSettings, upstream: Upstream, whip: WhipOutputs | None = None) -> None:
        self.settings = settings
        self.upstream = upstream
        self.ice = ice_servers(settings)
        self._whip = whip
        self._send_out = whip.begin if whip is not None and settings.whip else None
        self.counts = Counts()
        self.rates = Rates(settings)
        self.gate = ViewerGate(settings, upstream)
        self.places = Places(settings)
        self.publishers = 0
        self.is_stopping: Callable[[], bool] = lambda: False
        self._proxies = proxies(settings.trusted_proxies)
        self._lives: dict[str, LiveRoom] = {}
        self._homes: dict[str, str] = {}  # By cell, as Dispatch said last.
        self._settled_at = 0.0

    @property
    def viewers(self) -> int:
        return sum(len(room.viewers) for room in self._lives.values())

    @property
    def on_air(self) -> int:
        return sum(1 for room in self._lives.values() if room.on_air)

    def __len__(self) -> int:
        return len(self._lives)

    def names_on_air(self) -> list[str]:
        """Return the ids of the lives that show something."""
        return sorted(live.partition("/")[2] for live, room in self._lives.items() if room.on_air)

    def live(self, live_id: str) -> str:
        return live_key(self.settings.tenant, live_id)

    def find(self, live: str) -> LiveRoom | None:
        return self._lives.get(live)

    def room(self, live: str) -> LiveRoom:
        """Return the live's room, and make it if there is none. Raise Problem BUSY past `lives_max`."""
        if (found := self._lives.get(live)) is None:
            self._forget_idle()
            if len(self._lives) >= self.settings.lives_max:
                raise Problem(
                    "BUSY",
                    f"this room has {len(self._lives)} lives, at most {self.settings.lives_max} are taken; use another",
                )
            found = self._lives[live] = LiveRoom(live, self.counts, self._send_out)
        return found

    def address_of(self, request: web.Request) -> str:
        """Return the address that counts as one viewer's, for limits."""
        return site_of(client_address(request, self._proxies))

    async def follow_keys(self) -> None:
        """Read the keys of viewer tokens every KEYS_S, and end connections whose key was dropped, until cancelled."""
        while self.gate.needs_tokens:
            try:
                await self.gate.read()
            except Exception as error:
                log.error("cannot read the keys of viewer tokens", reason=repr(error))
            for place in self.places.all:
                if not self.gate.knows(place.viewer.kid) and place.leave is not None:
                    place.leave()
            await asyncio.sleep(KEYS_S)

    async def publishing(self, token: str) -> PublishingOut:
        """Return Dispatch's answer about a publish token, and note the home that it was read in."""
        answer = await self.upstream.publishing(token)
        known = self._homes.get(answer.cell_name)
        if answer.home and answer.home != known:
            if known is not None:
                log.warning("the store has another home; Dispatch is asked about every publisher", home=answer.home)
                self._settled_at = time.monotonic() + SETTLE_S
            self._homes[answer.cell_name] = answer.home
        return answer

    async def confirm(self) -> None:
        """Ask Dispatch every `confirm_s` about each live that is published or watched, until cancelled.

        A frozen, cut off or hostile Worker never reports that its live has ended, so the room asks. If `confirm_s` is
        long, a live of each cell is asked about every HOME_S, so that the room learns of another home of its store;
        then all lives are, for SETTLE_S.
        """
        turns = asyncio.Semaphore(CONFIRM_AT_ONCE_MAX)

        async def one(room: LiveRoom) -> None:
            async with turns:
                await self._confirm(room)

        rounds = math.ceil(self.settings.confirm_s / HOME_S)
        for number in itertools.count(1):
            await asyncio.sleep(self.settings.confirm_s / rounds)
            asked = self.shown() if number % rounds == 0 or self.settling else self.probed(number)
            for failed in await asyncio.gather(*map(one, asked), return_exceptions=True):
                if isinstance(failed, BaseException):
                    log.error("cannot confirm a live", reason=repr(failed))

    @property
    def settling(self) -> bool:
        """Whether the store's home has changed within SETTLE_S."""
        return time.monotonic() < self._settled_at

    def shown(self) -> list[LiveRoom]:
        """Return the lives that are published or watched."""
        return [room for room in self._lives.values() if room.in_use or room.on_air]

    def probed(self, number: int) -> list[LiveRoom]:
        """Return one live of each cell that is published, another one each round; none if no live is."""
        published: defaultdict[str, list[LiveRoom]] = defaultdict(list)
        for room in self._lives.values():
            if room.publishers:
                published[room.cell].append(room)
        return [lives[number % len(lives)] for lives in published.values()]

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
        await self.gate.close()
        viewers = [viewer for room in self._lives.values() for viewer in room.viewers.values()]
        closing = [viewer.close() for viewer in viewers]
        if self._whip is not None:
            closing.append(self._whip.close())
        await asyncio.gather(*closing, return_exceptions=True)
