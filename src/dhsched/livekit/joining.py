"""A generation in a room of LiveKit: it joins, takes its seat when it is claimed, and keeps earlier ones out.

A generation that is only prepared joins too, and publishes nothing: when it is claimed, its connection is there. It
takes its seat by its attributes. An earlier generation that is told to stop goes by itself when it has seen a picture
of the next one, so that viewers see one of both all the time. What is still there HAND_OVER_S after the claim is
removed by RoomService, and what comes back later is removed at once. A generation that sees a claimed seat with a
higher epoch is over, and says so (`superseded`): a Worker that was frozen learns it here first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from livekit import api, rtc

from dhsched.errors import BadSetting, DhschedError
from dhsched.livekit.seats import CLAIMED, EPOCH, LIVE, ON_BEHALF, Call, Seat, current, lower, seat_of
from dhsched.tasks import cancel, is_set_within
from dhsched.worker import Session

log = structlog.get_logger(__name__)

TOKEN_S = 600  # A token is used once, to join; the server renews the tokens of connected participants.
JOIN_S = 30.0  # A server that does not let a generation join within this fails the generation.
ANSWER_S = 0.2  # The SDK's answer is waited for so long: it may miss the server's, and returns after five seconds then.
HAND_OVER_S = 2.0  # An earlier generation is removed this long after the claim.
OTHERS_S = 1.0  # The earlier one stays so long after it has seen the next one's picture: to viewers it comes later.
REMOVE_S = 5.0  # A removal that is not answered within this is tried again.
RETRY_S = 0.5  # Time between two attempts to remove an earlier generation.
OVER_S = 30.0  # A generation that is out of its room waits this long to be stopped; then it has crashed.
GRANTS = {"room_join": True, "can_update_own_metadata": True}


@dataclass(frozen=True, slots=True)
class Access:
    """A LiveKit server, and the key with which tokens for it are signed."""

    url: str
    key: str
    secret: str = field(repr=False)

    @classmethod
    def found(cls) -> Access:
        """Read LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET; raise BadSetting if one is missing."""
        names = ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET")
        if missing := [name for name in names if not os.environ.get(name)]:
            raise BadSetting(f"LiveKit's server is not known: set {', '.join(missing)}")
        url, key, secret = (os.environ[name] for name in names)
        return cls(url, key, secret)

    def token(self, call: Call, live: str, epoch: int) -> str:
        return str(
            api.AccessToken(self.key, self.secret)
            .with_identity(call.identity(epoch))
            .with_name(call.name)
            .with_kind("agent")
            .with_ttl(timedelta(seconds=TOKEN_S))
            .with_attributes({LIVE: live, EPOCH: str(epoch)})
            .with_grants(api.VideoGrants(room=call.room, **GRANTS))
            .to_jwt()
        )

    def service(self) -> api.LiveKitAPI:
        return api.LiveKitAPI(self.url.replace("ws", "http", 1), self.key, self.secret)


@asynccontextmanager
async def joined(access: Access, call: Call, live: str, epoch: int, *, hears: bool = False) -> AsyncIterator[Place]:
    """Join the room as this generation, without publishing; leave with the block. Without `hears` it receives no
    media: the cameras of viewers would only load the GPU machine's network."""
    room = rtc.Room()
    place = Place(room, access, call, live, epoch)
    try:
        async with asyncio.timeout(JOIN_S):
            options = rtc.RoomOptions(auto_subscribe=hears)
            await room.connect(access.url, access.token(call, live, epoch), options)
    except TimeoutError:
        raise DhschedError(f"{call.identity(epoch)} could not join {call.room} within {JOIN_S:g} s") from None
    try:
        place.notice()
        yield place
    finally:
        await place.leave()


def seats_in(room: rtc.Room) -> list[Seat]:
    found = (seat_of(each.identity, each.attributes) for each in room.remote_participants.values())
    return [seat for seat in found if seat is not None]


class Place:
    """One generation in its room."""

    def __init__(self, room: rtc.Room, access: Access, call: Call, live: str, epoch: int) -> None:
        self.room = room
        self.call = call
        self.superseded = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.reason = ""
        self._access = access
        self._live = live
        self._epoch = epoch
        self._changed = asyncio.Event()
        self._showing: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        for event in ("participant_connected", "participant_disconnected", "participant_attributes_changed"):
            room.on(event, self._on_change)
        for event in ("track_published", "track_subscribed"):
            room.on(event, self._on_change)
        room.on("disconnected", self._on_disconnected)

    async def take(self) -> None:
        """Show that this generation is claimed, and keep earlier ones out from now on. Raise if the server refuses; a
        refusal that comes late ends the generation's stay in the room."""
        attributes = {CLAIMED: "1", **({ON_BEHALF: self.call.agent} if self.call.agent else {})}
        self._showing = asyncio.create_task(self.room.local_participant.set_attributes(attributes))
        done, _ = await asyncio.wait((self._showing,), timeout=ANSWER_S)
        for task in done:
            task.result()
        self._showing.add_done_callback(self._on_shown)
        self._keeping = asyncio.create_task(self._keep_out(), name=f"keep out {self._live}")

    async def leave(self) -> None:
        await cancel(self._showing, self._keeping)
        await self.room.disconnect()

    async def give_up(self, session: Session) -> None:
        """Leave, and wait until the live stops this generation: the next one is in the room, or has removed this one,
        so nothing more of it may be seen or heard. Raise DhschedError if nothing stops it for OVER_S."""
        await self.leave()
        if not await is_set_within(OVER_S, session.stopping):
            raise DhschedError(f"LiveKit ended the connection of {session.live}: {self.reason or 'superseded'}")

    async def followed(self, wait_s: float) -> None:
        """Wait until viewers see the next generation, for at most `wait_s`: until then the old face stays."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while (track := self._next_picture()) is None:
                    if self.disconnected.is_set():
                        return
                    await self._wait_for_change(wait_s)
                pictures = rtc.VideoStream(track, capacity=1)
                try:
                    await anext(pictures)
                finally:
                    await pictures.aclose()
                await asyncio.sleep(OTHERS_S)

    def notice(self) -> None:
        """Set `superseded` if a later generation has a claimed seat in the room."""
        self._changed.set()
        found = current(self.seats(), self._live)
        if found is not None and found.epoch > self._epoch:
            self.superseded.set()

    def seats(self) -> list[Seat]:
        return seats_in(self.room)

    # -- what happens in the room

    def _on_change(self, *_: object) -> None:
        self.notice()

    def _on_shown(self, showing: asyncio.Task[None]) -> None:
        if not showing.cancelled() and (error := showing.exception()) is not None:
            self._end(f"its seat is not shown as claimed: {error}")

    def _on_disconnected(self, reason: int) -> None:
        self._end(rtc.DisconnectReason.Name(reason))

    def _end(self, reason: str) -> None:
        self.reason = reason
        self.disconnected.set()
        self._changed.set()

    async def _wait_for_change(self, wait_s: float) -> None:
        self._changed.clear()
        await is_set_within(wait_s, self._changed)

    def _next_picture(self) -> rtc.Track | None:
        """Return the video track of the next generation, once it is received here."""
        found = current(self.seats(), self._live)
        participant = self.room.remote_participants.get(found.identity) if found is not None else None
        if found is None or participant is None or found.epoch <= self._epoch:
            return None
        for publication in participant.track_publications.values():
            if publication.kind == rtc.TrackKind.KIND_VIDEO:
                publication.set_subscribed(True)
                return publication.track
        return None

    async def _keep_out(self) -> None:
        loop = asyncio.get_running_loop()
        patient_until = loop.time() + HAND_OVER_S
        async with self._access.service() as service:
            while True:
                earlier = lower(self.seats(), self._live, self._epoch)
                patience_s = patient_until - loop.time()
                if earlier and patience_s > 0:
                    await self._wait_for_change(patience_s)
                    continue
                for seat in earlier:
                    await self._remove(service, seat)
                await self._wait_for_change(RETRY_S if earlier else HAND_OVER_S)

    async def _remove(self, service: api.LiveKitAPI, seat: Seat) -> None:
        named = api.RoomParticipantIdentity(room=self.call.room, identity=seat.identity)
        try:
            async with asyncio.timeout(REMOVE_S):
                await service.room.remove_participant(named)
        except Exception as error:
            # It has left by itself, or the server cannot be reached: then its seat is looked for again.
            log.info("an earlier generation was not removed", identity=seat.identity, error=str(error))
        else:
            log.info("an earlier generation was removed", identity=seat.identity)
