"""The agent's side: an avatar on your own GPUs, used like the avatar plugins of vendors.

avatar = AvatarSession("anna", dispatch=["http://d1:7400", "http://d2:7400"])
await avatar.start(session, room=ctx.room)  # placed, or Refused with the reason
await session.start(agent, room=ctx.room)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from livekit import rtc
from livekit.agents import AgentSession
from livekit.agents.voice.avatar import AvatarSession as BaseAvatarSession

from dhsched.addresses import DISPATCH
from dhsched.client import Client
from dhsched.errors import DhschedError, Refused
from dhsched.livekit.audio import AimedAudioOutput
from dhsched.livekit.joining import seats_in
from dhsched.livekit.seats import QUIET, SPEAKING, Call, current
from dhsched.tasks import cancel, is_set_within

log = structlog.get_logger(__name__)

URL = "DHSCHED_URL"
WAIT_S = 10.0  # A create waits this long for a free slot.
JOIN_S = 60.0  # A generation that has not joined the room by then fails the start.
IDLE_S = 60.0  # A live that gets no sign of this process for this long ends: its agent is dead.
SIGNS = 3  # Signs in IDLE_S, so that a lost one does not end the live.


class AvatarSession(BaseAvatarSession):  # type: ignore[type-arg, misc, unused-ignore]
    """An avatar for one agent in one room: a live, from `start` to the end of the agent's job (or `aclose`)."""

    def __init__(
        self,
        digital_id: str,
        *,
        dispatch: str | Sequence[str] | None = None,
        key: str | None = None,
        name: str = "",
        sample_rate: int = 24_000,
        config: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
        wait_s: float = WAIT_S,
    ) -> None:
        """`dispatch` are addresses of Dispatch, by default those in DHSCHED_URL. `name` is what the avatar's identities
        begin with, by default the DigitalID; two avatars in one room need two names. `wait_s` is how long a create may
        wait for a free slot."""
        super().__init__()
        self.live_id = ""
        self.output: AimedAudioOutput | None = None
        self._digital_id = digital_id
        self._name = name or digital_id
        self._sample_rate = sample_rate
        self._options: dict[str, Any] = {"config": config, "labels": labels, "wait_s": wait_s}
        self._client = Client(dispatch or os.environ.get(URL) or DISPATCH, key=key)
        self._open = False  # Whether the client is open.
        self._joined = asyncio.Event()
        self._changed = asyncio.Event()
        self._speaking = False
        self._changed_speech = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._where: rtc.Room | None = None

    @property
    def avatar_identity(self) -> str:
        """Return the identity of the current generation; before the first has joined, that of generation 1."""
        return (self.output.identity if self.output is not None else "") or f"{self._name}~1"

    @property
    def provider(self) -> str:
        return "dhsched"

    async def start(self, agent_session: AgentSession[Any], room: rtc.Room) -> None:
        """Create the live and wait until its first generation is in the room. Raise Refused, with the reason, if no
        Worker can take the live. Call `start` before the agent's session is started, as with every avatar."""
        await self._client.__aenter__()
        self._open = True
        try:
            call = Call(room.name, self._name, agent=room.local_participant.identity)
            placed = await self._client.create(self._digital_id, metadata=call.metadata, idle_s=IDLE_S, **self._options)
            self.live_id, self._where = placed.live_id, room
            self.output = AimedAudioOutput(room, sample_rate=self._sample_rate, on_speaking=self._note_speaking)
            for event in ("participant_connected", "participant_attributes_changed"):
                room.on(event, self._on_change)
            self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._give_signs())]
            async with asyncio.timeout(JOIN_S):
                await self._joined.wait()
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise DhschedError(
                    f"no generation of {self.live_id} joined {room.name} within {JOIN_S:g} s; "
                    f"`dhsched live why {self.live_id}` and `dhsched live logs {self.live_id}` say more"
                ) from None
            raise
        agent_session.output.audio = self.output
        await super().start(agent_session, room)

    async def aclose(self) -> None:
        """End the live, and with it the avatar."""
        await cancel(*self._tasks)
        self._tasks = []
        if self._where is not None:
            for event in ("participant_connected", "participant_attributes_changed"):
                self._where.off(event, self._on_change)
            self._where = None
        if self.output is not None:
            await self.output.aclose()
        if self.live_id:
            live, self.live_id = self.live_id, ""
            try:
                await self._client.end(live)
            except DhschedError as error:
                log.warning("the live was not ended; it ends by itself", live=live, idle_s=IDLE_S, error=str(error))
        if self._open:
            self._open = False
            await self._client.__aexit__()
        await super().aclose()

    # -- which generation is the current one

    def _on_change(self, *_: object) -> None:
        self._changed.set()

    async def _follow(self) -> None:
        """Aim the audio at each generation, as it takes its seat."""
        assert self._where is not None and self.output is not None
        aimed = 0
        while True:
            self._changed.clear()
            found = current(seats_in(self._where), self.live_id)
            if found is not None and found.epoch > aimed:
                aimed = found.epoch
                await self.output.aim(found.identity)
                self._joined.set()
            await self._changed.wait()

    # -- where sentences end, and that this process is alive

    def _note_speaking(self, speaking: bool) -> None:
        self._speaking = speaking
        self._changed_speech.set()

    async def _give_signs(self) -> None:
        """Push an item when the avatar begins or ends to speak: a planned move waits for the end. Without a change,
        repeat the last item: a live without input for IDLE_S ends, because its agent is dead."""
        while True:
            self._changed_speech.clear()
            try:
                text = SPEAKING if self._speaking else QUIET
                await self._client.push(self.live_id, text, boundary=not self._speaking)
            except Refused as error:
                log.warning("the live takes no input", live=self.live_id, error=str(error))
            except DhschedError as error:
                log.info("the live was not told", live=self.live_id, error=str(error))
            await is_set_within(IDLE_S / SIGNS, self._changed_speech)
