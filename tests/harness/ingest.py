"""A WHIP ingest that is not ours: aiortc behind the three requests of RFC 9725. It decodes what comes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCRtpReceiver, RTCSessionDescription

from tests.browser.testcard import colour
from tests.harness.fleet import ended, until

NEAR = 60  # Of 255, for each of three colours: the cards of testcard.py are further apart.


class Ingested:
    """One connection: when it was shown what."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.pictures: list[tuple[float, tuple[int, ...]]] = []
        self.sounds: list[float] = []
        self.deleted = False
        self._tasks: list[asyncio.Task[None]] = []

    async def answer(self, offer: str) -> str:
        self.pc.on("track", lambda track: self._tasks.append(asyncio.create_task(self._watch(track))))
        await self.pc.setRemoteDescription(RTCSessionDescription(offer, "offer"))
        await self.pc.setLocalDescription(await self.pc.createAnswer())
        return str(self.pc.localDescription.sdp)

    async def _watch(self, track: MediaStreamTrack) -> None:
        while True:
            frame: Any = await track.recv()
            at = float(frame.pts * frame.time_base)
            if track.kind == "audio":
                self.sounds.append(at)
            else:
                pixels = frame.to_ndarray(format="rgb24")[4:12, 4:12].reshape(-1, 3)
                self.pictures.append((at, tuple(int(each) for each in pixels.mean(axis=0))))

    def shows(self, epoch: int) -> bool:
        """Whether the last picture is of this epoch's card."""
        return bool(self.pictures) and is_of(self.pictures[-1][1], epoch)

    async def until_shows(self, epoch: int) -> None:
        await until(lambda: self.shows(epoch), f"a picture of epoch {epoch} at the ingest")

    async def until_more(self, count: int = 15) -> None:
        before = len(self.pictures)
        await until(lambda: len(self.pictures) > before + count, "more pictures at the ingest")

    def remote_address(self) -> str:
        """The address that the media comes from."""
        for receiver in self.pc.getReceivers():
            for pair in receiver.transport.transport._connection._nominated.values():
                return str(pair.remote_addr[0])
        return ""

    async def request_keyframe(self) -> None:
        """Report picture loss (PLI), as a decoder does that has lost its reference."""
        [receiver] = [each for each in self.pc.getReceivers() if each.track.kind == "video"]
        assert isinstance(receiver, RTCRtpReceiver)
        [source] = [each.source for each in receiver.getSynchronizationSources()]
        await receiver._send_rtcp_pli(source)

    async def close(self) -> None:
        await self.pc.close()
        await asyncio.gather(*map(ended, self._tasks))


class Ingest:
    """The ingest. `token` is what it asks for; a request without it is answered 401."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.offers: list[str] = []
        """The path of every offer that came, refused ones included."""
        self.all: list[Ingested] = []
        self._here: dict[str, Ingested] = {}

    @property
    def last(self) -> Ingested:
        return self.all[-1]

    async def until_connections(self, count: int) -> Ingested:
        await until(lambda: len(self.all) >= count, f"{count} connections at the ingest")
        return self.all[count - 1]

    async def post(self, request: web.Request) -> web.Response:
        self.offers.append(request.path)
        if (refused := self._refusal(request)) is not None:
            return refused
        assert request.content_type == "application/sdp"
        made, key = Ingested(request.path), secrets.token_hex(8)
        answer = await made.answer(await request.text())
        self._here[key] = made
        self.all.append(made)
        # As most ingests do, without the host.
        return web.Response(status=201, text=answer, content_type="application/sdp", headers={"Location": f"/r/{key}"})

    async def delete(self, request: web.Request) -> web.Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        if (made := self._here.pop(request.match_info["key"], None)) is None:
            return web.Response(status=404)
        made.deleted = True
        await made.close()
        return web.Response()

    def _refusal(self, request: web.Request) -> web.Response | None:
        right = not self.token or request.headers.get("Authorization") == f"Bearer {self.token}"
        return None if right else web.Response(status=401, text="no such token")


@contextlib.asynccontextmanager
async def running(ingest: Ingest, port: int = 0, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """The ingest at a port, until the end of the block; its URL."""
    app = web.Application()
    app.router.add_post("/whip/{live}", ingest.post)
    app.router.add_delete("/r/{key}", ingest.delete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await asyncio.gather(*(each.close() for each in ingest.all))


def is_of(pixel: tuple[int, ...], epoch: int) -> bool:
    return all(abs(a - b) < NEAR for a, b in zip(pixel, colour(epoch), strict=True))
