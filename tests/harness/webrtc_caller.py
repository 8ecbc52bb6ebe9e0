"""A SmallWebRTC client on aiortc: it sends offers as Pipecat's clients do, and measures the tone that it hears."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import numpy as np
from aiortc import RTCPeerConnection, RTCSessionDescription

OFFERS_MAX = 8  # Each waits half a minute for a bot.
CONNECT_S = 15.0  # A connection that is not there by then is made anew, as Pipecat's clients do.
LOUD = 1_000  # Of 32,767: a frame below this is silence.


class Caller:
    """One client of one session. `tones` has what was heard, in Hz, a number per loud frame of 20 ms. `signals` has
    what the bot has said of the connection: at `renegotiate` Pipecat's client makes a new one, at `peerLeft` it goes.
    """

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._pc: RTCPeerConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.session = ""
        self.pc_id: str | None = None
        self.tones: list[int] = []
        self.signals: list[str] = []
        self.pings = 0  # That were sent over the present connection.
        self._told = False  # To make a new connection.

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
        self._told, self.pings = False, 0
        channel = pc.createDataChannel("chat")
        channel.on("message", self._on_message)
        pc.addTransceiver("audio", direction="sendrecv")
        pc.on("track", lambda track: self._tasks.append(asyncio.create_task(self._listen(track))))
        self._tasks.append(asyncio.create_task(self._ping(channel)))
        await pc.setLocalDescription(await pc.createOffer())
        more = {"pc_id": self.pc_id, "restart_pc": True} if again else {}
        for _ in range(OFFERS_MAX):
            status, answer = await self._offer(**more)
            if status != 503:  # There is no bot yet: try again, as the answer says.
                break
        assert status == 200, answer
        self.pc_id = answer["pc_id"]
        await pc.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"]))

    async def go_on(self) -> tuple[int, Any]:
        """Offer to go on with the connection that is there, as Pipecat's clients do first when they are told to."""
        return await self._offer(pc_id=self.pc_id, restart_pc=False)

    async def _offer(self, **more: Any) -> tuple[int, Any]:
        assert self._pc is not None
        here = self._pc.localDescription
        async with self._http.post(self.where, json={"sdp": here.sdp, "type": here.type, **more}) as response:
            return response.status, await response.json()

    @property
    def state(self) -> str:
        return str(self._pc.connectionState) if self._pc is not None else "closed"

    async def stay_connected(self, enough: Callable[[], bool], *, connected: bool = False) -> None:
        """Connect, unless this client is `connected`, and anew whenever the connection fails, until this is enough. A
        bot whose Worker was just killed may answer an offer with its last breath: its client hears nothing and must ask
        again."""
        loop = asyncio.get_running_loop()
        while not enough():
            if not connected:
                await self.connect()
            connected = False
            give_up = loop.time() + CONNECT_S
            while not enough():
                state = self.state
                if self._told or (state != "connected" and (state in ("failed", "closed") or loop.time() > give_up)):
                    break
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._pc is not None:
            await self._pc.close()

    def _on_message(self, message: str) -> None:
        said = json.loads(message)
        if said.get("type") == "signalling":
            self.signals.append(said["message"]["type"])
            self._told = self._told or self.signals[-1] == "renegotiate"

    async def _ping(self, channel: Any) -> None:
        while True:
            if channel.readyState == "open":
                channel.send("ping: 1")
                self.pings += 1
            await asyncio.sleep(0.5)

    async def _listen(self, track: Any) -> None:
        while True:
            frame = await track.recv()
            samples = frame.to_ndarray().reshape(-1).astype(int)
            samples = samples[:: len(frame.layout.channels)]
            if np.abs(samples).max() > LOUD:
                crossings = int((np.diff(np.sign(samples)) != 0).sum())
                self.tones.append(round(crossings / 2 * frame.sample_rate / len(samples)))
