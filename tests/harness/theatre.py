"""A room with publishers and viewers on real sockets, and a Dispatch that says who may publish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from dhsched.local.ports import free_port
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.room.app import Room, open_room
from dhsched.room.settings import RoomSettings
from dhsched.tokens import Publishing
from dhsched.types import Generation
from dhsched.worker import Publish
from tests.harness.fleet import Fleet, ended, fleet
from tests.harness.keyed import bearer

SDP = {"Content-Type": "application/sdp"}
LOUD = 1_000  # Of 32,767: a frame of sound below this is silence.


class Theatre:
    def __init__(self, made: Fleet, room: Room, url: str) -> None:
        self.fleet, self.room, self.url = made, room, url

    def path(self, what: str) -> str:
        return f"{self.url}/v1/lives/demo/{what}"

    def publish(self, worker: str, epoch: int) -> Publish:
        tokens = self.fleet.controllers[0].pull_text.tokens
        return Publish(self.url, tokens.issue_publish(Publishing("default/demo", Generation(worker, epoch))))

    async def viewer_token(self, live: str = "demo", **body: Any) -> str:
        """A viewer token that Dispatch mints; by default with every grant."""
        body = {"grants": ["watch", "say", "interrupt"], **body}
        status, minted = await self.fleet.post(f"{self.fleet.dispatch[0]}/v1/lives/{live}/viewer-tokens", body)
        assert status == 200, minted
        return str(minted["token"])

    async def state(self, token: str = "") -> Any:
        async with self.fleet.http.get(self.path("state"), headers=bearer(token) if token else {}) as response:
            assert response.status == 200
            return await response.json()


@asynccontextmanager
async def theatre(
    folder: Path, limits: Limits = DEFAULT_LIMITS, replica: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Theatre]:
    """`replica` are settings of Dispatch and Infer alike."""
    port = free_port()
    roles = {"room": f"http://127.0.0.1:{port}", **(replica or {})}
    async with fleet(folder, limits=limits, replica=replica, **roles) as made, stage(made, port, **settings) as at:
        yield at


@asynccontextmanager
async def stage(made: Fleet, port: int, **settings: Any) -> AsyncIterator[Theatre]:
    """A room for a deployment whose Infer-Controllers name its port."""
    urls_of = {"dispatch": f"http://127.0.0.1:1,{made.dispatch[0]}", "infer": made.infer[0]}
    # A busy machine is late with everything: viewers' first packets too.
    asked = RoomSettings(**{"port": port, "access": "open", "stun_s": 60, "connect_s": 60, **urls_of, **settings})
    async with open_room(asked) as room:
        urls: list[str] = []
        await made.serve(room.app, urls, port=port)
        yield Theatre(made, room, urls[0])


class Watcher:
    """A viewer that keeps the timestamps of what it decoded; `loud` counts the frames of sound that are not silent."""

    def __init__(self) -> None:
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.seen: dict[str, list[float]] = {"video": [], "audio": []}
        self.loud = 0
        self.location = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def offer(self, kinds: tuple[str, ...] = ("audio", "video")) -> str:
        for kind in kinds:
            self.pc.addTransceiver(kind, direction="recvonly")
        self.pc.on("track", lambda track: self._tasks.append(asyncio.create_task(self._watch(track))))
        await self.pc.setLocalDescription(await self.pc.createOffer())
        return str(self.pc.localDescription.sdp)

    async def connect(self, at: Theatre, kinds: tuple[str, ...] = ("audio", "video"), token: str = "") -> None:
        status = await self.try_connect(at, await self.offer(kinds), **(bearer(token) if token else {}))
        assert status == 201, status

    async def try_connect(self, at: Theatre, offer: str, **headers: str) -> int:
        """Post the offer and use the answer, if there is one; the status."""
        async with at.fleet.http.post(at.path("whep"), data=offer, headers={**SDP, **headers}) as response:
            if response.status != 201:
                return response.status
            self.location = response.headers["Location"]
            await self.pc.setRemoteDescription(RTCSessionDescription(await response.text(), "answer"))
            return response.status

    async def _watch(self, track: MediaStreamTrack) -> None:
        while True:
            frame: Any = await track.recv()
            self.seen[track.kind].append(float(frame.pts * frame.time_base))
            self.loud += track.kind == "audio" and bool(np.abs(frame.to_ndarray()).max() > LOUD)

    async def close(self) -> None:
        await self.pc.close()
        await asyncio.gather(*map(ended, self._tasks))


async def idle(session: Any) -> None:
    async for _ in session.inputs():
        pass
