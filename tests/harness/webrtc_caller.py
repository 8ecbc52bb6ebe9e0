"""A SmallWebRTC client on aiortc: it sends offers as Pipecat's clients do, and measures the tone that it hears."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import numpy as np
from aiortc import RTCPeerConnection, RTCSessionDescription

OFFERS_MAX = 8  # Each waits half a minute for a bot.
CONNECT_S = 15.0  # A connection that is not there by then is made anew, as Pipecat's clients do.
LOUD = 1_000  # Of 32,767: a frame below this is silence.


class Caller:
    """One client of one session. `tones` has what was heard, in Hz, a number per loud frame of 20 ms."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._pc: RTCPeerConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.session = ""
        self.pc_id: str | None = None
        self.tones: list[int] = []

    async def start(self, **body: Any) -> dict[str, Any]:
        async with self._http.post(f"{self._url}/start", json=body) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == 200, answer
        self.session = answer["sessionId"]
        return answer

    @property
    def where(self) -> str:
        return f"{self._url}/sessions/{self.session}/api/offer"

    async def connect(self) -> None:
        """Connect, or connect anew: with the connection that was lost, as Pipecat's clients do."""
        again = self._pc is not None
        await self.close()
        pc = self._pc = RTCPeerConnection()
        channel = pc.createDataChannel("chat")
        pc.addTransceiver("audio", direction="sendrecv")
        pc.on("track", lambda track: self._tasks.append(asyncio.create_task(self._listen(track))))
        self._tasks.append(asyncio.create_task(self._ping(channel)))
        await pc.setLocalDescription(await pc.createOffer())
        offer = {"sdp": pc.localDescription.sdp, "type": pc.localDescription.type}
        more = {"pc_id": self.pc_id, "restart_pc": True} if again else {}
        for _ in range(OFFERS_MAX):
            async with self._http.post(self.where, json={**offer, **more}) as response:
                answer = await response.json()
                if response.status != 503:  # There is no bot yet: try again, as the answer says.
                    break
        assert response.status == 200, answer
        self.pc_id = answer["pc_id"]
        await pc.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"]))

    async def stay_connected(self, enough: Callable[[], bool]) -> None:
        """Connect, and anew whenever the connection fails, until this is enough. A bot whose Worker was just killed may
        answer an offer with its last breath: its client hears nothing and must ask again."""
        loop = asyncio.get_running_loop()
        while not enough():
            await self.connect()
            give_up = loop.time() + CONNECT_S
            while not enough():
                state = self._pc.connectionState if self._pc is not None else "closed"
                if state != "connected" and (state in ("failed", "closed") or loop.time() > give_up):
                    break
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._pc is not None:
            await self._pc.close()

    async def _ping(self, channel: Any) -> None:
        while True:
            if channel.readyState == "open":
                channel.send("ping: 1")
            await asyncio.sleep(0.5)

    async def _listen(self, track: Any) -> None:
        while True:
            frame = await track.recv()
            samples = frame.to_ndarray().reshape(-1).astype(int)
            samples = samples[:: len(frame.layout.channels)]
            if np.abs(samples).max() > LOUD:
                crossings = int((np.diff(np.sign(samples)) != 0).sum())
                self.tones.append(round(crossings / 2 * frame.sample_rate / len(samples)))
