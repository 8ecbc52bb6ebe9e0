"""Publishing to the room as the hostile Worker: the first message and the packets, with wrong values.

The picture that it publishes is red (picture.py), in its own lives by right. The honest viewer of another live must
never see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

import aiohttp
from msgspec import inspect

from dhsched.links import messages as m
from dhsched.room.packets import HEADER, KEYFRAME, VIDEO, Begin, Packet, write_packet
from dhsched.room.publish import PATH
from dhsched.room.settings import RoomSettings
from dhsched.tokens import Publishing as PublishClaims
from dhsched.types import Generation
from tests.chaos.hostile import ANSWER_S, REPEATING_S, Hostile, Prey
from tests.chaos.hostile_values import EVIL, Known, Row, fields_of, rows_of, value_of_type, with_field, wrong
from tests.chaos.picture import GREEN, RED, begin, encoded

BEGIN, PACKET = "publish begin", "publish packet"
PTS_US = 1_000_000
WIDTHS = dict(zip(("kind", "keyframe", "pts_us"), (1, 1, 8), strict=True))
"""Bytes of each field in a packet's header."""


class Publishing:
    """The hostile Worker as a publisher."""

    def __init__(self, hostile: Hostile) -> None:
        self.rows = [*rows_of(BEGIN, Begin), *(Row(PACKET, field) for field in Packet._fields)]
        self._hostile = hostile
        self._red, self._green = encoded(RED, 0xEEEE), encoded(GREEN, 0)

    async def send(self, row: Row, kind: str) -> int:
        prey = self._hostile.prey(m.Pull)
        await self._hostile.pace()
        async with self._connected(prey) as socket:
            if row.message == BEGIN:
                first = begin(prey.own.live, prey.own.record.epoch)
                own = first
                for part in row.field.split("."):
                    own = own[part]
                others = {"live": prey.other.live, "epoch": prey.other.record.epoch}
                value = wrong(kind, fields_of(Begin)[row.field], Known(own, others.get(row.field)))
                await socket.send_str(json.dumps(with_field(first, row.field, value)))
            else:
                await socket.send_str(json.dumps(begin(prey.own.live, prey.own.record.epoch)))
                await self._wrong_packet(socket, row.field, kind)
            came = await self._came(socket)
        self._hostile.coverage.count(row, kind, came)
        return 1

    async def repeat(self, message: str, times: int) -> int:
        prey = self._hostile.prey(m.Pull)
        first = json.dumps(begin(prey.own.live, prey.own.record.epoch))
        size = 2 if message == BEGIN else 50  # The second first message ends the connection.
        sent, until = 0, time.monotonic() + REPEATING_S
        while sent < times and time.monotonic() < until:
            async with self._connected(prey) as socket:
                if message == PACKET:
                    await socket.send_str(first)
                while sent < times and not socket.closed and time.monotonic() < until:
                    await self._hostile.pace(size)
                    for _ in range(size):
                        if message == PACKET:
                            await socket.send_bytes(self._packet())
                        else:
                            await socket.send_str(first)
                    came = await self._came(socket, keyframe=False)
                    sent += size
                    self._hostile.coverage.repeated(message, came, size)
        return sent

    def _packet(self) -> bytes:
        return write_packet(Packet(VIDEO, True, PTS_US, self._red))

    async def _wrong_packet(self, socket: aiohttp.ClientWebSocketResponse, field: str, kind: str) -> None:
        """Send a packet with one wrong field; one of a wrong type as text, one that is too long as one byte more."""
        packet = Packet(VIDEO, True, PTS_US, self._red)
        if kind == "wrong type":
            await socket.send_str(json.dumps({field: [EVIL]}))
            return
        if field == "payload":
            longest = RoomSettings().packet_bytes_max if kind == "too long" else 0
            payload = bytes(longest + 1) if longest else wrong(kind, inspect.BytesType(), Known(self._red, self._green))
            await socket.send_bytes(HEADER.pack(VIDEO, KEYFRAME, PTS_US) + payload)
            return
        value = int(wrong(kind, value_of_type(PTS_US), Known(int(getattr(packet, field)), 7, 0, 2)))
        numbers = {"kind": VIDEO, "keyframe": KEYFRAME, "pts_us": PTS_US, field: value}
        head = b""
        for name, width in WIDTHS.items():
            width += name == field and kind == "too long"
            head += (numbers[name] % 256**width).to_bytes(width, "big")
        await socket.send_bytes(head + self._red)

    @contextlib.asynccontextmanager
    async def _connected(self, prey: Prey) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        hostile = self._hostile
        generation = Generation(prey.own.worker, prey.own.record.epoch)
        token = hostile.tokens.issue_publish(PublishClaims(prey.own.live, generation, prey.boot.key))
        shown = {"Authorization": f"Bearer {token}"}
        async with asyncio.timeout(ANSWER_S):
            socket = await hostile.http.ws_connect(hostile.deployment.room + PATH, headers=shown, autoping=False)
        try:
            yield socket
        finally:
            with contextlib.suppress(TimeoutError, OSError):
                await asyncio.wait_for(socket.close(), ANSWER_S)

    async def _came(self, socket: aiohttp.ClientWebSocketResponse, *, keyframe: bool = True) -> str:
        """Send a valid packet and a ping, and return whether the connection lasts."""
        with contextlib.suppress(TimeoutError, ConnectionError, OSError):
            if keyframe:
                await socket.send_bytes(self._packet())
            await socket.ping()
            async with asyncio.timeout(ANSWER_S):
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.PONG:
                        return "ignored"
        return "closed" if socket.closed else "ignored"
