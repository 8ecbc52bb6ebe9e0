"""Sends a generation's packets to the room, over one WebSocket that reconnects when it is lost.

    -> {"live", "epoch", "video": {"codec": "vp8", "clock": 90000}, "audio": {"codec": "opus", "clock": 48000}}
    -> kind (0 video, 1 audio, 2 caption), flags (bit 0: keyframe), pts in microseconds (8 bytes), payload; binary
    <- {"keyframe": true}                 request: make the next frame a keyframe
    <- {"stale": {"epoch": n}}            the live has moved on
    <- {"ended": true}                    the live has ended

After either of the last two the publisher stays away for STALE_S, and then tries again: a store that has forgotten what
followed makes this generation the current one once more. Otherwise the Worker's agent ends the runtime before that.

The runtime never waits for the room. Packets go into a bounded queue; when the queue is full, all of it is old, so it
is emptied and video goes on with the next keyframe. Without a connection nothing is queued.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import aiohttp
import msgspec
import structlog

from dhsched.avatar.encode import VIDEO_CLOCK
from dhsched.avatar.speech import RATE
from dhsched.room.packets import VIDEO, Packet, write_packet
from dhsched.tasks import cancel, is_set_within
from dhsched.worker.session import Publish

log = structlog.get_logger(__name__)

PATH = "/v1/publish"
QUEUE_PACKETS_MAX = 200  # Three seconds of a speaking face; a full queue is emptied, because it is too old to show.
QUEUE_BYTES_MAX = 512 * 1024  # A queue of more bytes is emptied as well.
CONNECT_S = 3.0  # A room that does not accept the connection for this long is dialled again.
SEND_S = 2.0  # A room that does not take a packet for this long is disconnected.
CLOSE_S = 0.5  # Packets that are still queued this long after `close` are dropped.
HEARTBEAT_S = 2.0  # A room that does not answer a ping for this long is dialled again.
BACKOFF_FIRST_S = 0.1  # Pause after the first failed connection; doubled after each, up to:
BACKOFF_MAX_S = 2.0
STALE_S = 5.0  # A publisher whose generation is superseded, or whose live has ended, connects again after this long.
MESSAGE_BYTES_MAX = 4_096  # A longer message of a room ends the connection.


class Heard(msgspec.Struct):
    """A message from the room."""

    keyframe: bool = False
    stale: dict[str, int] | None = None
    ended: bool = False


class Queue:
    """A bounded queue of packets. Video that needs a dropped frame to be decoded is refused."""

    def __init__(self) -> None:
        self.dropped = 0
        self.needs_keyframe = True
        self._packets: deque[Packet] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._packets)

    def put(self, packet: Packet) -> None:
        full = len(self._packets) >= QUEUE_PACKETS_MAX or self._bytes + len(packet.payload) > QUEUE_BYTES_MAX
        if full:
            self.flush()
        if packet.kind == VIDEO:
            if self.needs_keyframe and not packet.keyframe:
                self.dropped += 1
                return
            self.needs_keyframe = False
        self._packets.append(packet)
        self._bytes += len(packet.payload)

    def flush(self) -> None:
        self.dropped += len(self._packets)
        self._packets.clear()
        self._bytes = 0
        self.needs_keyframe = True

    def pop(self) -> Packet | None:
        if not self._packets:
            return None
        packet = self._packets.popleft()
        self._bytes -= len(packet.payload)
        return packet


class Publisher:
    """Publishes one generation. `where` returns the place, which may change; `on_keyframe` requests a keyframe."""

    def __init__(
        self,
        *,
        live: str,
        epoch: int,
        where: Callable[[], Publish | None],
        on_keyframe: Callable[[], None],
        video: str = "vp8",
    ) -> None:
        self.connected = False
        self.stale = False  # Whether the room said at the last connection that the live has moved on or ended.
        self._begin = msgspec.json.encode(
            {
                "live": live,
                "epoch": epoch,
                "video": {"codec": video, "clock": VIDEO_CLOCK},
                "audio": {"codec": "opus", "clock": RATE},
            }
        ).decode()
        self._live, self._epoch = live, epoch
        self._where = where
        self._on_keyframe = on_keyframe
        self._queue = Queue()
        self._some = asyncio.Event()
        self._empty = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def dropped(self) -> int:
        return self._queue.dropped

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"publish {self._live}@{self._epoch}")

    def put(self, packets: Iterable[Packet]) -> None:
        if not self.connected:
            return
        for packet in packets:
            self._queue.put(packet)
        if self._queue.needs_keyframe:
            self._on_keyframe()
        self._some.set()

    async def close(self) -> None:
        """Wait up to CLOSE_S for the queue to be sent, then disconnect."""
        if self._task is None:
            return
        if self.connected and len(self._queue):
            self._empty.clear()
            await is_set_within(CLOSE_S, self._empty)
        await cancel(self._task)

    async def _run(self) -> None:
        """Connect again and again, until cancelled."""
        backoff_s = BACKOFF_FIRST_S
        async with aiohttp.ClientSession() as http:
            while True:
                self.stale = False
                if (place := self._where()) is not None and await self._connect(http, place):
                    backoff_s = STALE_S if self.stale else BACKOFF_FIRST_S
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _connect(self, http: aiohttp.ClientSession, place: Publish) -> bool:
        """Serve one connection from its beginning to its end; return whether there was one."""
        served = False
        try:
            async with asyncio.timeout(CONNECT_S) as connecting:
                async with http.ws_connect(
                    place.url.rstrip("/") + PATH,
                    headers={"Authorization": f"Bearer {place.token}"},
                    heartbeat=HEARTBEAT_S,
                    max_msg_size=MESSAGE_BYTES_MAX,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                ) as socket:
                    await socket.send_str(self._begin)
                    connecting.reschedule(None)
                    served = self.connected = True
                    self._queue.flush()
                    self._on_keyframe()
                    await self._serve(socket)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            log.warning("no connection to the room", room=place.url, live=self._live, epoch=self._epoch, reason=reason)
        finally:
            self.connected = False
            self._queue.flush()
            self._empty.set()
        return served

    async def _serve(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Send packets and handle messages until either ends."""
        sending = asyncio.create_task(self._send(socket))
        hearing = asyncio.create_task(self._hear(socket))
        try:
            done, _ = await asyncio.wait((sending, hearing), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await cancel(sending, hearing)

    async def _send(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while (packet := self._queue.pop()) is not None:
                async with asyncio.timeout(SEND_S):
                    await socket.send_bytes(write_packet(packet))
            self._empty.set()

    async def _hear(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            try:
                heard = msgspec.json.decode(message.data, type=Heard)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                log.warning("the room sent a message that cannot be read", live=self._live, reason=str(error))
                continue
            if heard.stale is not None:
                self.stale = True
                log.info("superseded at the room", live=self._live, epoch=self._epoch, by=heard.stale.get("epoch"))
                return
            if heard.ended:
                self.stale = True
                log.info("the live has ended at the room", live=self._live, epoch=self._epoch)
                return
            if heard.keyframe:
                self._on_keyframe()
