"""The client of a generation: one SmallWebRTC connection, whose offers come from the start service (start.py).

A claimed generation dials the start services that its live's metadata names, and answers the offers that they pass on.
Nothing connects to a Worker, and a generation that is over is asked nothing any more: the service tells it that a
later one is there, and it lets its client go. A client that is let go is told to connect anew; by itself Pipecat's
transport would tell it that the session is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import Any

import msgspec
from aiortc.sdp import candidate_from_sdp
from loguru import logger
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.connection import SIGNALLING_TYPE, RenegotiateMessage, SmallWebRTCConnection
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport

from dhsched.client.credentials import TLS_CA
from dhsched.client.http import NO_ANSWER, open_session, open_socket
from dhsched.errors import BadValue
from dhsched.pipecat.signalling import MESSAGE_BYTES_MAX, SERVICES_MAX, SUPERSEDED, Answered, Calling, Hello, Request
from dhsched.tasks import cancel

RETRY_S = 0.5  # First pause between two attempts to reach a start service; doubled after each, up to:
RETRY_MAX_S = 10.0
HEARTBEAT_S = 10.0  # A service that does not answer a ping for this long is dialled anew.
ENDED_S = 1.0  # A service that does not say within this whether the live has ended: then the client tries again.
FLUSH_S = 0.1  # The last message to a client has this long to leave.


class Connection(SmallWebRTCConnection):  # type: ignore[misc]
    """A connection whose end is not the end of its session, unless `ended` is set: its client connects anew."""

    ended = False

    async def disconnect(self) -> None:
        if self.ended:
            await super().disconnect()
            return
        # A client of Pipecat's answers with an offer, which the next generation refuses because it continues this
        # connection; then it makes a new one. It would need ten seconds to notice that this one is gone.
        self.send_app_message({"type": SIGNALLING_TYPE, "message": RenegotiateMessage().model_dump()})
        await asyncio.sleep(FLUSH_S)
        await self._close()


class Peer:
    """The connection to one client at a time; the offer of another client replaces it. `connected` is set while
    there is a client."""

    def __init__(self, params: TransportParams, ice_servers: Sequence[str], changed: asyncio.Event) -> None:
        """`changed` is set whenever a client connects or is lost."""
        self._connection = Connection([*ice_servers] or None)
        self.transport = SmallWebRTCTransport(self._connection, params)
        self.connected = asyncio.Event()
        self.lost = asyncio.Event()
        self.lost.set()
        self._changed = changed
        for state in ("connected", "disconnected", "closed", "failed"):
            self._connection.add_event_handler(state, self._is_connected if state == "connected" else self._is_lost)

    async def _is_connected(self, _: Any) -> None:
        self.lost.clear()
        self.connected.set()
        self._changed.set()

    async def _is_lost(self, _: Any) -> None:
        self.connected.clear()
        self.lost.set()
        self._changed.set()

    async def leave(self, calling: Calling | None) -> None:
        """Let the client go. If the live goes on, the client connects to the next generation."""
        if self._connection.get_answer() is None:
            return
        urls = [] if calling is None else [f"{url}/sessions/{calling.live}" for url in calling.services[:SERVICES_MAX]]
        for url in urls:
            try:
                async with (
                    asyncio.timeout(ENDED_S),
                    open_session([url], os.environ.get(TLS_CA, "")) as http,
                    http.get(url) as response,
                ):
                    self._connection.ended = bool((await response.json())["ended"])
                    break
            except (*NO_ANSWER, KeyError, ValueError) as error:
                logger.warning(f"whether the live has ended is not known: {url} has not answered: {error!r}")
        await self._connection.disconnect()

    # -- signalling

    async def dial(self, calling: Calling, epoch: int) -> None:
        """Answer the offers of all start services, until this is cancelled."""
        await asyncio.gather(*(self._dial(url, calling, epoch) for url in calling.services[:SERVICES_MAX]))

    async def _dial(self, url: str, calling: Calling, epoch: int) -> None:
        pause_s = RETRY_S
        async with open_session([url], os.environ.get(TLS_CA, "")) as http:
            while True:
                try:
                    options = {"heartbeat": HEARTBEAT_S, "max_msg_size": MESSAGE_BYTES_MAX}
                    async with await open_socket(http, f"{url}/bots", **options) as socket:
                        await socket.send_bytes(msgspec.json.encode(Hello(calling.live, epoch, calling.secret)))
                        async for message in socket:
                            pause_s = RETRY_S
                            await socket.send_bytes(msgspec.json.encode(await self._answer(message.data)))
                    if socket.close_code == SUPERSEDED and self._connection.get_answer() is not None:
                        # A Worker that was frozen may learn it here first. Its client must hear no more of it, and
                        # connects to the later generation.
                        await self._connection.disconnect()
                except NO_ANSWER as error:
                    logger.warning(f"no connection to the start service {url}: {error!r}")
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_MAX_S)

    async def _answer(self, data: str | bytes) -> Answered:
        asked = Request()
        try:
            asked = msgspec.json.decode(data, type=Request)
            if asked.sdp:
                return Answered(asked.id, answer=await self._offered(asked))
            return Answered(asked.id, error=await self._trickled(asked))
        except BadValue as error:
            return Answered(asked.id, error=str(error))
        except Exception as error:  # aiortc raises what it likes about an offer that it cannot read.
            logger.warning(f"an offer cannot be answered: {error!r}")
            return Answered(asked.id, error=f"the offer cannot be answered: {type(error).__name__}")

    async def _offered(self, asked: Request) -> dict[str, str]:
        connection = self._connection
        first = connection.get_answer() is None
        known = not first and asked.pc_id == connection.pc_id and connection.pc.connectionState != "closed"
        if asked.pc_id and not known and not asked.restart_pc:
            raise BadValue("the connection is not known here: make a new one")
        if first:
            await connection.initialize(asked.sdp, "offer")
        else:
            await connection.renegotiate(asked.sdp, "offer", restart_pc=not known or bool(asked.restart_pc))
        answer = connection.get_answer()
        assert answer is not None
        return dict(answer)

    async def _trickled(self, asked: Request) -> str:
        """Take a client's candidates; return why they were refused, empty if they were not."""
        if asked.pc_id != self._connection.pc_id:
            return "the connection is not known here: send an offer"
        for each in asked.candidates:
            # An empty candidate is the end of them.
            candidate = candidate_from_sdp(each.candidate.removeprefix("candidate:")) if each.candidate else None
            if candidate is not None:
                candidate.sdpMid, candidate.sdpMLineIndex = each.sdp_mid, each.sdp_mline_index
            await self._connection.add_ice_candidate(candidate)
        return ""


@contextlib.asynccontextmanager
async def dialling(peer: Peer | None, metadata: dict[str, Any], epoch: int) -> Any:
    """Answer offers during the block, if the bot has a peer and a start service made the live."""
    calling = Calling.of(metadata)
    if peer is None or calling is None:
        yield
        return
    dials = asyncio.create_task(peer.dial(calling, epoch))
    try:
        yield
    finally:
        await cancel(dials)
