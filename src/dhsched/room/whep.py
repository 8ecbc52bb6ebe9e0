"""Viewers, by WHEP: `POST /v1/lives/{live_id}/whep` with an SDP offer is answered 201 with an SDP answer and the URL of
the viewer's session, which DELETE ends. Link headers name the ICE servers for the viewer, if there are any (ice.py).

`GET {session}/captions` is a stream of server-sent events: what is heard, in words (captions.py). A session has one
such stream, which ends with the session, so it needs no limits of its own.

Each request carries a viewer token (viewer_gate.py). A connection ends when the token expires, unless `POST
{session}/token` has shown another one by then.

A viewer's connection knows nothing of generations: it stays as it is when they change. A page of another origin may
call if the room allows that origin; web/origins.py also answers the browser's CORS preflight.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web
from aiortc import RTCPeerConnection, RTCSessionDescription

from dhsched.access.viewers import VerifiedViewer
from dhsched.errors import DhschedError
from dhsched.room.live_room import LiveRoom, Viewer
from dhsched.room.offers import check_offer, without_addresses
from dhsched.room.packets import AUDIO, VIDEO
from dhsched.room.places import Place
from dhsched.room.rooms import Rooms
from dhsched.room.tracks import KIND, Forward, answer_keyframe_requests, codecs, configured
from dhsched.types import check_id
from dhsched.web import Problem, body_in_time
from dhsched.web.event_stream import send_events
from dhsched.web.server import refuse

log = structlog.get_logger(__name__)

PATH = "/v1/lives/{live_id}/whep"
SDP = "application/sdp"
SDP_BYTES_MAX = 32 * 1024  # A larger offer is refused with TOO_LARGE.
ANSWER_S = 8.0  # An offer that takes longer to answer is refused (STUN may take 5 s); a close that does is left.
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def routes(rooms: Rooms) -> list[web.RouteDef]:
    async def post(request: web.Request) -> web.Response:
        live_id = check_id(request.match_info["live_id"], "live_id")
        viewer = await rooms.gate.admit(request.headers, live_id, "watch")
        offer = await body_in_time(read_offer(request), rooms.settings.body_s)
        place = rooms.places.take(address=rooms.address_of(request), viewer=viewer, live=live_id)
        try:
            room = await room_of(rooms, live_id)
            key = secrets.token_urlsafe(12)
            answer = await ViewerConnection(rooms, room, key, place).answer(offer)
        except BaseException:
            rooms.places.free(place)
            raise
        response = web.Response(status=201, text=answer, content_type=SDP)
        response.headers["Location"] = f"/v1/lives/{live_id}/whep/{key}"
        # Without tokens all viewers have one name, so each connection gets credentials of its own.
        for link in rooms.ice.links(f"{live_id}/{viewer.name if viewer.kid else key}", now=time.time()):
            response.headers.add("Link", link)
        return response

    async def session(request: web.Request) -> tuple[Viewer, VerifiedViewer]:
        live_id, key = check_id(request.match_info["live_id"], "live_id"), request.match_info["key"]
        viewer = await rooms.gate.admit(request.headers, live_id, "watch")
        room = rooms.find(rooms.live(live_id))
        connection = room.viewers.get(key) if room is not None else None
        if connection is None:
            raise Problem("NOT_FOUND", f"live {live_id} has no such viewer; it may have left already")
        return connection, viewer

    async def delete(request: web.Request) -> web.Response:
        connection, _ = await session(request)
        await connection.close()
        return web.Response(status=200)

    async def renew(request: web.Request) -> web.Response:
        connection, viewer = await session(request)
        connection.renew(viewer)
        return web.Response(status=204)

    async def captions(request: web.Request) -> web.StreamResponse:
        connection, _ = await session(request)
        room = rooms.room(rooms.live(request.match_info["live_id"]))
        key, reader = request.match_info["key"], object()
        connection.reader = reader

        def is_open() -> bool:
            return room.viewers.get(key) is connection and connection.reader is reader and not rooms.is_stopping()

        return await send_events(request, room.captions.follow(is_open))

    return [
        web.post(PATH, refusing(post)),
        web.delete(PATH + "/{key}", refusing(delete)),
        web.post(PATH + "/{key}/token", refusing(renew)),
        web.get(PATH + "/{key}/captions", refusing(captions)),
    ]


def refusing(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except DhschedError as error:
            return refuse(error, "", "whep")

    return answer


async def read_offer(request: web.Request) -> str:
    if request.content_type != SDP:
        raise Problem("MEDIA_TYPE", f"send the offer with Content-Type: {SDP}, not {request.content_type}")
    raw = await request.content.read(SDP_BYTES_MAX + 1)
    while len(raw) <= SDP_BYTES_MAX and (more := await request.content.read(SDP_BYTES_MAX)):
        raw += more
    if len(raw) > SDP_BYTES_MAX:
        raise Problem("TOO_LARGE", f"the offer has more than {SDP_BYTES_MAX} bytes", bytes_max=SDP_BYTES_MAX)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Problem("BAD_REQUEST", f"the offer is not UTF-8: {error}") from None


async def room_of(rooms: Rooms, live_id: str) -> LiveRoom:
    """Return the room of a live that exists: its room is in use, or Dispatch knows the live."""
    if (found := rooms.find(rooms.live(live_id))) is None or not found.in_use:
        owner = await rooms.upstream.owner(live_id)
        if owner.state == "ended":
            raise Problem("ENDED", f"live {live_id} has ended")
    return rooms.room(rooms.live(live_id))


class ViewerConnection:
    """One viewer: a peer connection with a send-only track for each kind of media that the viewer offered."""

    def __init__(self, rooms: Rooms, room: LiveRoom, key: str, place: Place) -> None:
        self.video = Forward(VIDEO, room.want_keyframe)
        self.audio = Forward(AUDIO, room.want_keyframe)
        self.reader: object = None
        self._rooms = rooms
        self._room = room
        self._key = key
        self._place = place
        # Our candidates are this machine's addresses, and those that STUN tells; the viewer's come with its packets.
        self._pc = RTCPeerConnection(configured(rooms.ice.own(turn=False, now=time.time())))
        self._giving_up: asyncio.TimerHandle | None = None
        self._expiring: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    async def answer(self, offer: str) -> str:
        """Return the answer to an offer; from then on the viewer counts as connected."""
        pc, video = self._pc, self._rooms.settings.video
        try:
            offered = check_offer(offer)
            for kind, track in ((AUDIO, self.audio), (VIDEO, self.video)):
                if KIND[kind] not in offered:
                    continue  # aiortc cannot answer with a transceiver that the offer does not have.
                transceiver = pc.addTransceiver(track, direction="sendonly")
                # Set before the offer: aiortc chooses the codec when the offer is set.
                transceiver.setCodecPreferences(codecs(kind, video))
                if kind == VIDEO:
                    answer_keyframe_requests(transceiver.sender, self._room.want_keyframe)
            pc.on("connectionstatechange", self._state_changed)
            pc.on("iceconnectionstatechange", self._ice_changed)
            async with asyncio.timeout(ANSWER_S):
                await pc.setRemoteDescription(RTCSessionDescription(without_addresses(offer), "offer"))
                await pc.setLocalDescription(await pc.createAnswer())
        except DhschedError:
            await pc.close()
            raise
        except Exception as error:
            # aiortc raises many types; an offer that cannot be answered is its sender's fault.
            await pc.close()
            reason = str(error) or type(error).__name__
            raise Problem(
                "BAD_REQUEST", f"the offer cannot be answered: {reason}; it needs {video.upper()} or Opus to receive"
            ) from None
        self._room.watch(self._key, self)
        self._place.leave = self._leave
        if not self._place.connected:
            settings = self._rooms.settings
            self._give_up_after(settings.connect_s if self._place.heard else settings.stun_s)
        self.renew(self._place.viewer)
        return pc.localDescription.sdp

    def renew(self, viewer: VerifiedViewer) -> None:
        """Let the connection last until this viewer's token expires."""
        self._place.viewer = viewer
        if self._expiring is not None:
            self._expiring.cancel()
            self._expiring = None
        if viewer.until != math.inf:
            left_s = max(0.0, viewer.until - time.time())
            self._expiring = asyncio.get_running_loop().call_later(left_s, self._leave)

    def _give_up_after(self, seconds: float) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._giving_up = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _ice_changed(self) -> None:
        """Note that the viewer's packets arrive. They may before the answer is sent: a viewer can know our address."""
        if self._pc.iceConnectionState == "completed" and not self._place.heard:
            self._place.heard = True
            if self._giving_up is not None and not self._place.connected:
                self._give_up_after(self._rooms.settings.connect_s)

    def _state_changed(self) -> None:
        state = self._pc.connectionState
        if state == "connected":
            self._place.connected = True
            if self._giving_up is not None:
                self._giving_up.cancel()
        elif state in ("failed", "closed"):
            self._leave()

    def _give_up(self) -> None:
        if not self._place.connected:
            log.info("viewer did not connect", live=self._room.live, state=self._pc.iceConnectionState)
            self._rooms.places.given_up += 1
            self._leave()

    def _leave(self) -> None:
        if self._forget():
            self._closing = asyncio.create_task(self._pc.close())

    def _forget(self) -> bool:
        """Free the viewer's place; return whether it had one."""
        for timer in (self._giving_up, self._expiring):
            if timer is not None:
                timer.cancel()
        self._rooms.places.free(self._place)
        return self._room.unwatch(self._key) is not None

    async def close(self) -> None:
        """Disconnect the viewer, because it leaves or the room stops."""
        self._forget()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await self._pc.close()
