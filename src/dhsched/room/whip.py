"""Lives out to a WHIP ingest (RFC 9725): each live that shows something is sent to a URL of its own.

For the ingest the room is one client with one connection for the whole live. Generations change behind the fence, so
the ingest sees the same tracks go on, and a superseded Worker has neither the ingest's address nor its token. Packets
are passed on as they came, like those of viewers (tracks.py), and the ingest's requests for keyframes go to the
publisher on air.

    begin   with the first packet that passes the fence
    lost    refused, not connected in time, closed by the ingest, or silent: again after a backoff, which doubles up to
            BACKOFF_MAX_S
    end     when the live ends, after `whip_idle_s` without a packet of any publisher, or when the room stops: DELETE
            on the resource that the ingest has named
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from urllib.parse import quote

import aiohttp
import structlog
from aiortc import RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from aiortc.stats import RTCTransportStats
from yarl import URL

from dhsched.client.http import NO_ANSWER, read_reply
from dhsched.errors import DhschedError
from dhsched.room.live_room import LiveRoom
from dhsched.room.packets import AUDIO, VIDEO
from dhsched.room.settings import LIVE, RoomSettings, ice_servers
from dhsched.room.tracks import Encoded, Forward, answer_keyframe_requests, codecs, configured
from dhsched.settings import read_secret
from dhsched.tasks import cancel, is_set_within
from dhsched.types import live_key
from dhsched.web import Problem

log = structlog.get_logger(__name__)

BACKOFF_FIRST_S = 0.5  # Pause after the first failed connection; doubled after each, up to:
BACKOFF_MAX_S = 30.0
GOOD_S = 10.0  # After a connection that lasted this long, the backoff begins anew.
ANSWER_S = 10.0  # An ingest that takes longer to answer a request is not waited for.
WATCH_S = 0.5  # Time between two checks of a connection.
SILENT_MAX_S = 15.0  # An ingest that gets packets and sends none (RTCP) for this long has gone away.
CONNECT_AT_ONCE_MAX = 8  # Further lives wait: an ingest that comes back gets the offers of all lives.
CLOSE_S = 5.0  # A connection or a resource that takes longer to end is left.
REDIRECTS_MAX = 3  # An offer that is redirected more often fails.


class WhipOutputs:
    """The ingest as all lives of a room process use it."""

    def __init__(self, settings: RoomSettings, http: aiohttp.ClientSession) -> None:
        self.settings = settings
        self.http = http
        self.ice = ice_servers(settings)
        self.turns = asyncio.Semaphore(CONNECT_AT_ONCE_MAX)
        self.connects = 0
        self.failures = 0
        self._outputs: dict[str, WhipOutput] = {}
        self._stopping = False
        if settings.whip_token_file and LIVE not in settings.whip_token_file:
            read_secret(Path(settings.whip_token_file), "whip_token_file")  # So that a mistake is seen at the start.

    def __len__(self) -> int:
        return len(self._outputs)

    @property
    def connected(self) -> int:
        return sum(output.connected for output in self._outputs.values())

    def begin(self, room: LiveRoom) -> None:
        """Send this live to its ingest from now on. A live of another tenant is not sent: it might have the same id."""
        _, _, live_id = room.live.partition("/")
        ours = room.live == live_key(self.settings.tenant, live_id)
        if ours and room.live not in self._outputs and not self._stopping:
            room.output = self._outputs[room.live] = WhipOutput(self, room, live_id)

    def forget(self, room: LiveRoom) -> None:
        self._outputs.pop(room.live, None)
        room.output = None
        room.note_idle()

    async def close(self) -> None:
        self._stopping = True  # Publishers may be connected for a moment longer.
        await asyncio.gather(*(output.close() for output in [*self._outputs.values()]))


class WhipOutput:
    """One live on its way to its ingest: at most one connection at a time."""

    def __init__(self, outputs: WhipOutputs, room: LiveRoom, live_id: str) -> None:
        self._outputs = outputs
        self._room = room
        self._url = outputs.settings.whip.replace(LIVE, quote(live_id, safe=""))
        self._token_file = outputs.settings.whip_token_file.replace(LIVE, live_id)
        self._ending = asyncio.Event()
        self._connection: IngestConnection | None = None
        self._said = ""
        self._heard_at = asyncio.get_running_loop().time()
        self._running = asyncio.create_task(self._run(), name=f"whip {room.live}")

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def put(self, kind: int, packet: Encoded, *, keyframe: bool) -> None:
        """Take a packet that has passed the fence; without a connection it is dropped."""
        self._heard_at = asyncio.get_running_loop().time()
        if self._connection is not None:
            self._connection.tracks[kind].put(packet, keyframe=keyframe)

    def end(self) -> None:
        """End the output soon: it DELETEs its resource and disconnects, and then forgets itself."""
        self._ending.set()

    async def close(self) -> None:
        """End the output, and wait for it, for at most twice CLOSE_S."""
        self.end()
        await asyncio.wait({self._running}, timeout=2 * CLOSE_S)
        await cancel(self._running)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = BACKOFF_FIRST_S
        try:
            while not self._is_over():
                began = loop.time()
                await self._connect_and_watch()
                if self._is_over():
                    return
                self._outputs.failures += 1
                if loop.time() - began > GOOD_S:
                    backoff_s = BACKOFF_FIRST_S
                await is_set_within(backoff_s, self._ending)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
        finally:
            self._outputs.forget(self._room)

    def _is_over(self) -> bool:
        idle_s = asyncio.get_running_loop().time() - self._heard_at
        return self._ending.is_set() or idle_s > self._outputs.settings.whip_idle_s

    async def _connect_and_watch(self) -> None:
        """Connect, and return when the connection failed, was lost, or is to end. A new reason is logged once."""
        connection = IngestConnection(self._outputs, self._room, self._url, self._token_file)
        try:
            async with self._outputs.turns:
                if self._is_over():
                    return
                await connection.open()
            self._outputs.connects += 1
            self._connection = connection
            log.info("sent to a WHIP ingest", live=self._room.live, url=self._url)
            self._said = ""
            while not (reason := await connection.trouble()) and not self._is_over():
                await is_set_within(WATCH_S, self._ending)
        except DhschedError as error:
            reason = str(error)
        finally:
            self._connection = None
            await connection.close()
        if reason and reason != self._said:
            self._said = reason
            log.warning("not sent to its WHIP ingest; tried again", live=self._room.live, url=self._url, reason=reason)


class IngestConnection:
    """One connection to an ingest: a peer connection, and the resource that stands for it there."""

    def __init__(self, outputs: WhipOutputs, room: LiveRoom, url: str, token_file: str) -> None:
        self.tracks = {kind: Forward(kind, room.want_keyframe) for kind in (AUDIO, VIDEO)}
        self._settings = outputs.settings
        self._http = outputs.http
        self._room = room
        self._url = URL(url)
        self._token_file = token_file
        self._resource: URL | None = None
        self._pc = RTCPeerConnection(configured(outputs.ice.own(turn=True, now=time.time())))
        self._senders: list[RTCRtpSender] = []
        self._changed = asyncio.Event()
        self._silence = Silence()

    async def open(self) -> None:
        """Offer, use the answer, and wait until the connection is up. Raise a DhschedError if it does not come up."""
        pc, video = self._pc, self._settings.video
        for kind, track in self.tracks.items():
            transceiver = pc.addTransceiver(track, direction="sendonly")
            transceiver.setCodecPreferences(codecs(kind, video))
            self._senders.append(transceiver.sender)
            if kind == VIDEO:
                answer_keyframe_requests(transceiver.sender, self._room.want_keyframe)
        pc.on("connectionstatechange", self._changed.set)
        try:
            async with asyncio.timeout(ANSWER_S):
                await pc.setLocalDescription(await pc.createOffer())
            answer = await self._post(pc.localDescription.sdp)
            async with asyncio.timeout(ANSWER_S):
                await pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
            async with asyncio.timeout(self._settings.connect_s):
                while pc.connectionState != "connected":
                    if pc.connectionState in ("failed", "closed"):
                        raise not_ready("the ingest's answer came, and no packets pass between it and the room")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            limit_s = self._settings.connect_s
            raise not_ready(f"the ingest answered, and its connection was not up after {limit_s:g} s") from None
        except DhschedError:
            raise
        except Exception as error:
            # aiortc raises many types for an answer that it cannot use.
            reason = str(error) or type(error).__name__
            raise not_ready(f"the ingest's answer cannot be used: {reason}; it must take {video} and opus") from None

    async def _post(self, offer: str) -> str:
        headers = {"Content-Type": "application/sdp", **self._authorization()}
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        try:
            async with self._http.post(
                self._url, data=offer.encode(), headers=headers, timeout=timeout, max_redirects=REDIRECTS_MAX
            ) as response:
                reply = await read_reply(response)
                if reply.status != 201:
                    raise not_ready(f"the ingest answered {reply.status}: {reply.body[:200].decode(errors='replace')}")
                if "Location" not in response.headers:
                    raise not_ready("the ingest answered 201 without a Location, so the connection could not be ended")
                self._resource = response.url.join(URL(response.headers["Location"]))
                return reply.body.decode(errors="replace")
        except (*NO_ANSWER, ValueError) as error:
            raise not_ready(f"the ingest does not answer: {str(error) or type(error).__name__}") from error

    def _authorization(self) -> dict[str, str]:
        """Return the header with the token. Its file is read for each request: tokens are renewed."""
        if not self._token_file:
            return {}
        return {"Authorization": f"Bearer {read_secret(Path(self._token_file), 'whip_token_file')}"}

    async def trouble(self) -> str:
        """Return why the connection is lost; empty while it is not."""
        sender = self._senders[0]
        if self._pc.connectionState != "connected" or sender.transport.state != "connected":
            return "the ingest has closed the connection, or does not answer any more"
        sent = sum(track.sent for track in self.tracks.values())
        reports = (await sender.getStats()).values()
        received = sum(report.packetsReceived for report in reports if isinstance(report, RTCTransportStats))
        if self._silence.is_over(sent, received):
            return f"the ingest has sent nothing for {SILENT_MAX_S:g} s"
        return ""

    async def close(self) -> None:
        """Delete the resource, then disconnect: the ingest learns of the end even if its packets are lost."""
        if self._resource is not None:
            await self._delete(self._resource)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._pc.close()

    async def _delete(self, resource: URL) -> None:
        try:
            # The token is the ingest's: another server that it has named does not get it.
            headers = self._authorization() if resource.origin() == self._url.origin() else {}
            timeout = aiohttp.ClientTimeout(total=CLOSE_S)
            async with self._http.delete(resource, headers=headers, timeout=timeout) as response:
                await read_reply(response)
        except (*NO_ANSWER, DhschedError, ValueError) as error:
            log.info("the ingest was not told of the end", live=self._room.live, reason=repr(error))


class Silence:
    """Measures how long the other end has been silent although packets were sent to it."""

    def __init__(self) -> None:
        self._received = 0
        self._since = 0.0
        self._sent = 0

    def is_over(self, sent: int, received: int) -> bool:
        """Return whether the silence is longer than SILENT_MAX_S. It begins with the first packet that is sent after
        one came; an end that never sent anything is not judged by its silence."""
        now = asyncio.get_running_loop().time()
        if received != self._received or sent == self._sent or not received:
            self._received, self._since = received, now
        self._sent = sent
        return now - self._since > SILENT_MAX_S


def not_ready(detail: str) -> Problem:
    return Problem("NOT_READY", detail)
