"""Publishers: `/v1/publish`, a WebSocket on which a Worker sends the media of one generation of one live.

    Authorization: Bearer <publish token>                                       in the request
    -> {"live", "epoch", "video": {"codec", "clock"}, "audio": {...}}           text, first
    -> kind, flags, pts, payload                                                binary, from then on (packets.py);
                                                                                media, and captions of what is heard
    <- {"keyframe": true}                                                       request: make the next frame a keyframe
    <- {"stale": {"epoch": 8}}, then close                                      the live is at this epoch or further
    <- {"ended": true}, then close                                              the live has ended

A token that Dispatch does not know is refused before the upgrade. A message that cannot be read ends the connection
with a reason. A Worker that loses its connection comes back with the same token; Dispatch is asked anew about it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import structlog
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from dhsched.access.gate import bearer
from dhsched.client.models.lives import PublishingOut
from dhsched.errors import BadValue, DhschedError
from dhsched.room.fence import Admitted, NeverIssued, Superseded
from dhsched.room.live_room import LiveRoom
from dhsched.room.packets import read_begin, read_packet
from dhsched.room.rooms import Rooms
from dhsched.web import Problem, upgrade
from dhsched.web.problems import problem_of

log = structlog.get_logger(__name__)

PATH = "/v1/publish"
BEGIN_S = 5.0  # A publisher whose first message takes longer is disconnected.
HEARTBEAT_S = 2.0  # A publisher that does not answer a ping for this long is disconnected.
CLOSE_S = 1.0  # A publisher that does not take a message or answer a close for this long is dropped.
REASON_BYTES_MAX = 120  # A longer reason is cut: a close frame holds no more.
MALFORMED, UNAUTHORIZED, REPLACED, STALE, ENDED = 4400, 4401, 4408, 4409, 4410


def routes(rooms: Rooms) -> list[web.RouteDef]:
    async def serve(request: web.Request) -> web.StreamResponse:
        try:
            token = shown_token(request)
            publishing = await rooms.publishing(token)
            room = rooms.room(publishing.live)
            if isinstance(admitted := room.admit(publishing), NeverIssued):
                raise Problem(
                    "FORBIDDEN", f"live {publishing.live}: {admitted.reason}; pull to get a token of your own"
                )
            if publishing.state == "ended":
                raise Problem("ENDED", f"live {publishing.live} has ended; stop publishing")
        except DhschedError as error:
            rooms.counts.refused += 1
            problem = problem_of(error)
            log.warning("publisher refused", code=problem.code, reason=problem.detail, peer=request.remote)
            return problem.response()
        packet_bytes_max = rooms.settings.packet_bytes_max
        socket = await upgrade(request, heartbeat_s=HEARTBEAT_S, frame_bytes_max=packet_bytes_max, close_s=CLOSE_S)
        if socket is None:
            return web.Response()
        connection = PublisherConnection(rooms, room, socket, token, publishing)
        rooms.publishers += 1
        try:
            await connection.serve(admitted)
        finally:
            rooms.publishers -= 1
        return socket

    return [web.get(PATH, serve)]


def shown_token(request: web.Request) -> str:
    if not (token := bearer(request.headers.get("Authorization", ""))) or len(token) > 2_048:
        raise Problem("UNAUTHORIZED", "publishing needs `Authorization: Bearer <token>`, with the token of the claim")
    return token


class PublisherConnection:
    """One connection of one generation."""

    def __init__(
        self, rooms: Rooms, room: LiveRoom, socket: web.WebSocketResponse, token: str, publishing: PublishingOut
    ) -> None:
        self.epoch = publishing.epoch
        self.worker = publishing.worker
        self.cause = publishing.cause
        self._rooms = rooms
        self._room = room
        self._socket = socket
        self._token = token
        self._live = publishing.live
        self._asking: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def serve(self, admitted: Admitted | Superseded) -> None:
        """Serve the connection from its first message until either side ends it."""
        try:
            if isinstance(admitted, Superseded):
                self.superseded(admitted.epoch)
            else:
                await self._listen()
        except BadValue as error:
            self._rooms.counts.malformed += 1
            log.warning("publisher cut off", live=self._live, epoch=self.epoch, reason=str(error))
            self._end(MALFORMED, str(error))
        finally:
            self._room.leave(self)
            self._end(WSCloseCode.OK, "")
            assert self._ending is not None
            await self._ending

    async def _listen(self) -> None:
        try:
            first = await self._receive(BEGIN_S)
        except TimeoutError:
            raise BadValue(f"no message came within {BEGIN_S:g} s; begin with a JSON text") from None
        if first is None:
            return
        if first.type is not WSMsgType.TEXT:
            raise BadValue("the first message must be a JSON text")
        video = self._rooms.settings.video
        read_begin(first.data, live=self._live, epoch=self.epoch, video=video)
        self._room.join(self)
        self._room.want_keyframe()
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        while (message := await self._receive()) is not None:
            if message.type is not WSMsgType.BINARY:
                raise BadValue("every message after the first must be binary")
            packet = read_packet(message.data, video)
            if self._room.must_ask(self, silent_s=loop.time() - heard_at) and not await self._may_go_on():
                return
            heard_at = loop.time()
            if not self._room.hear(self, packet):
                return

    async def _receive(self, wait_s: float | None = None) -> WSMessage | None:
        """Return the next message; None if either side has closed the connection."""
        try:
            message = await self._socket.receive(wait_s)
        except ConnectionError:  # A ping could not be answered.
            return None
        if message.type is WSMsgType.ERROR:
            raise BadValue(f"a message cannot be read: {message.data}")
        return message if message.type in (WSMsgType.TEXT, WSMsgType.BINARY) else None

    async def _may_go_on(self) -> bool:
        """Ask Dispatch about a publisher that may have been frozen, or was admitted in another home of the store,
        before its packet passes; return the answer."""
        if isinstance(still := await self._ask_again(), Superseded):
            self.superseded(still.epoch)
        elif isinstance(still, DhschedError):
            self._end(WSCloseCode.TRY_AGAIN_LATER, str(still))
        return isinstance(still, Admitted)

    async def confirm(self) -> None:
        """Ask Dispatch again while packets pass, and disconnect if the live has ended or the token is void.

        A publisher that was admitted in this home and is superseded goes on until its successor publishes; without an
        answer everything goes on: viewers must not lose the picture because Dispatch is restarted.
        """
        await self._ask_again()

    async def _ask_again(self) -> Admitted | Superseded | DhschedError | None:
        """Return Dispatch's answer about this connection; None if the connection has been ended for good."""
        try:
            publishing = await self._rooms.publishing(self._token)
        except DhschedError as error:
            code = error.code if isinstance(error, Problem) else ""
            if code == "NOT_FOUND":
                await self._room.end()
            elif code == "UNAUTHORIZED":
                self._end(UNAUTHORIZED, str(error))
            return None if code in ("NOT_FOUND", "UNAUTHORIZED") else error
        if publishing.state == "ended":
            await self._room.end()
            return None
        if isinstance(still := self._room.admit(publishing), NeverIssued):
            self._end(MALFORMED, still.reason)
            return None
        return still

    # -- for the live

    def want_keyframe(self) -> None:
        # A publisher that has not taken the last request would not take another.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._say({"keyframe": True}))

    def superseded(self, epoch: int) -> None:
        self._end(STALE, f"superseded by epoch {epoch}", {"stale": {"epoch": epoch}})

    def replaced(self) -> None:
        self._end(REPLACED, "another connection of this generation has taken over")

    def ended(self) -> None:
        self._end(ENDED, "the live has ended", {"ended": True})

    def _end(self, code: int, reason: str, last_word: dict[str, Any] | None = None) -> None:
        """Send the reason and close, once; `_receive` then ends as well."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._finish(code, reason, last_word))

    async def _finish(self, code: int, reason: str, last_word: dict[str, Any] | None) -> None:
        if last_word is not None:
            await self._say(last_word)
        told = reason.encode("ascii", "replace")[:REASON_BYTES_MAX]
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(2 * CLOSE_S):
                await self._socket.close(code=code, message=told)

    async def _say(self, said: dict[str, Any]) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(CLOSE_S):
                await self._socket.send_str(msgspec.json.encode(said).decode())
