"""A deployment with Workers of avatars, and an agent, for tests with a LiveKit server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from livekit import rtc
from livekit.agents import AgentSession

from dhsched.livekit import AvatarSession
from dhsched.local.deployment import Deployment
from dhsched.local.process import Process
from dhsched.store.server.embedded import Embedded
from tests.harness.livekit_avatar import RATE
from tests.harness.livekit_client import Server
from tests.harness.livekit_server import KEY, SECRET
from tests.harness.processes import ROOT


@asynccontextmanager
async def found_server() -> AsyncIterator[Server]:
    """The server of LIVEKIT_URL, or the stand-in."""
    if url := os.environ.get("LIVEKIT_URL"):
        yield Server(url, os.environ["LIVEKIT_API_KEY"], os.environ["LIVEKIT_API_SECRET"])
        return
    process = await Process.start("livekit", module="tests.harness.livekit_server")
    try:
        yield Server(await process.until_ready(), KEY, SECRET)
    finally:
        await process.stop()


class Quiet(Process):
    folder = ROOT


class Rig(Deployment):
    kind = Quiet

    def __init__(self, store: str, livekit: Server) -> None:
        super().__init__(store)
        self.livekit = livekit

    async def avatars(self, name: str, module: str = "tests.harness.livekit_avatar") -> Process:
        """Start a Worker of avatars."""
        arguments = (name, ",".join(await self.dispatch_urls()), str(self.folder))
        how: dict[str, Any] = {"module": module, "role": "worker", "pool": "gpu"}
        self.workers[name] = await self.start(name, *arguments, **how, environment=self.livekit.environment)
        return self.workers[name]

    async def owner(self, live_id: str) -> Process:
        """Return the Worker that has the live."""
        async with self.client() as client:
            worker = (await client.get(live_id)).worker
        assert worker is not None
        [name] = [name for name in self.workers if worker.startswith(name)]
        return self.workers[name]


@asynccontextmanager
async def rig(livekit: Server, workers: int = 1) -> AsyncIterator[Rig]:
    async with Embedded() as server, Rig(server.address.url(), livekit) as made:
        await made.dispatch("d1")
        await made.infer("c1")
        await made.configure({"anna": ["gpu"]})
        await asyncio.gather(*(made.avatars(f"gpu-{n}") for n in range(workers)))
        await made.until_workers(workers)
        yield made


@asynccontextmanager
async def speaking_agent(
    made: Rig, *, takes: bool = True, **options: Any
) -> AsyncIterator[tuple[AgentSession[None], AvatarSession]]:
    """An agent in the room with its avatar: LiveKit's own AgentSession, without a language model."""
    async with made.livekit.joined("agent", kind="agent", takes=takes) as room:
        session: AgentSession[None] = AgentSession()
        avatar = AvatarSession("anna", dispatch=await made.dispatch_urls(), sample_rate=RATE, **options)
        try:
            await avatar.start(session, room=room)
            yield session, avatar
        finally:
            await avatar.aclose()
            await session.aclose()


def tone(seconds: float) -> Iterator[rtc.AudioFrame]:
    """A loud sound, in frames of 50 ms."""
    samples = RATE // 20
    wave = (8_000, 8_000, 8_000, 8_000, 8_000, -8_000, -8_000, -8_000, -8_000, -8_000) * (samples // 10)
    data = b"".join(each.to_bytes(2, "little", signed=True) for each in wave)
    for _ in range(round(seconds * 20)):
        yield rtc.AudioFrame(data, RATE, 1, samples)


async def speak(avatar: AvatarSession, seconds: float) -> None:
    """Say something as an agent's session does, and do not wait for its end."""
    assert avatar.output is not None
    for frame in tone(seconds):
        await avatar.output.capture_frame(frame)
    avatar.output.flush()
