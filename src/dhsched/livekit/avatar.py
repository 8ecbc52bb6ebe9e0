"""The GPU side: a model behind LiveKit's VideoGenerator interface, as a runtime.

    def make(session: Session) -> VideoGenerator:
        return MuseTalk(session.digital_id)

    run_avatar(make, options=AvatarOptions(512, 512, 25, 24_000, 1), pool="gpu", capacity=3)

The agent sends the audio by LiveKit's data streams, as it does to any avatar; LiveKit's own AvatarRunner takes it,
gives it to the model, and publishes what comes back. The live's input says only whether the avatar speaks, so that a
planned move waits for the end of a sentence.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Unpack

import structlog
from livekit import rtc
from livekit.agents.voice.avatar import (
    AudioSegmentEnd,
    AvatarOptions,
    AvatarRunner,
    DataStreamAudioReceiver,
    VideoGenerator,
)

from dhsched.errors import DhschedError
from dhsched.livekit.audio import FINISHED, PLAYED_TOPIC, STARTED
from dhsched.livekit.joining import Access, Place, joined
from dhsched.livekit.seats import SPEAKING, call_of
from dhsched.tasks import cancel, first
from dhsched.worker import Runtime, Session, WorkerOptions, run

log = structlog.get_logger(__name__)

Factory = Callable[[Session], VideoGenerator | Awaitable[VideoGenerator]]

LINGER_S = 2.0  # The old face stays this long at most, while the next generation brings its first picture.
REPORT_S = 0.25  # Played audio between two reports to the agent.
BUFFERED_S = 0.2  # Audio given to LiveKit within this time may not have been heard yet: it is played again.
NOTIFIES_MAX = 3  # Attempts to notify the agent; then the avatar goes on without.
NOTIFY_EVERY_S = 0.2  # Time between two of these attempts.
SPEAKING_S = 120.0  # An avatar that speaks is no stall; its agent says several times in this time that it speaks.


def run_avatar(factory: Factory, *, options: AvatarOptions, **worker: Unpack[WorkerOptions]) -> None:
    """Run a Worker of avatars until a signal stops it. `factory` is called once per generation, before its claim."""
    run(avatar_runtime(factory, options), **worker)


def avatar_runtime(factory: Factory, options: AvatarOptions, access: Access | None = None) -> Runtime:
    """Return the runtime that `run_avatar` runs, for a Worker inside a program of your own."""
    found = access or Access.found()

    async def avatar(session: Session) -> None:
        await perform(session, factory, options, found)

    return avatar


async def perform(session: Session, factory: Factory, options: AvatarOptions, access: Access) -> None:
    """Run one generation of one avatar, from its preparation to its end."""
    call = call_of(session.metadata, session.digital_id)
    made = factory(session)
    generator = await made if inspect.isawaitable(made) else made
    live = session.live.partition("/")[2]
    async with joined(access, call, live, session.generation.epoch) as place:
        receiver = Receiver(place.room, call.agent)
        reading = asyncio.create_task(read(session, receiver), name=f"read {session.live}")
        listening = asyncio.create_task(receiver.start(), name=f"listen {session.live}")
        try:
            if await claimed(session, place, reading) and await listens(session, place, listening):
                # The agent speaks to this generation as soon as it sees the seat.
                await place.take()
                reported = Reported(generator, place)
                runner = Runner(place.room, audio_recv=receiver, video_gen=reported, options=options)
                await until_over(session, place, runner, reading)
        finally:
            await cancel(reading, listening)
            await receiver.aclose()


async def read(session: Session, receiver: Receiver) -> None:
    """Take the live's input, which says whether the avatar speaks. The item SPEAKING is acked when the avatar is quiet
    again, and until then a planned move waits. An interrupt stops the voice."""
    async for item in session.inputs(auto_ack=False):
        if item.kind == "interrupt":
            receiver.emit("clear_buffer")
        if item.kind == "text" and item.text == SPEAKING:
            session.extend(SPEAKING_S)
        else:
            session.ack()


async def claimed(session: Session, place: Place, reading: asyncio.Task[None]) -> bool:
    """Wait for the claim; return False if the generation is over before that."""
    await first(session.claimed, session.stopping, place.disconnected, tasks=(reading,))
    if place.disconnected.is_set() and not session.stopping.is_set():
        raise DhschedError(f"LiveKit ended the connection of {place.room.name} before the claim: {place.reason}")
    return session.claimed.is_set() and not session.stopping.is_set()


async def listens(session: Session, place: Place, listening: asyncio.Task[None]) -> bool:
    """Wait for the agent; return False if the generation is over before it comes."""
    await first(session.stopping, place.superseded, place.disconnected, tasks=(listening,))
    if listening.done():
        listening.result()
    elif not session.stopping.is_set():
        await place.give_up(session)
    return listening.done()


async def until_over(session: Session, place: Place, runner: AvatarRunner, reading: asyncio.Task[None]) -> None:
    """Perform until the live moves on or ends. Raise if the generation can go on no longer: it is placed anew then."""
    running = asyncio.create_task(play(runner), name=f"play {session.live}")
    try:
        await first(session.stopping, place.superseded, place.disconnected, tasks=(reading, running))
        for task in (reading, running):
            if task.done() and not session.stopping.is_set():
                task.result()
        if place.superseded.is_set() or place.disconnected.is_set():
            await place.give_up(session)
        elif session.stopping.is_set():
            await place.followed(LINGER_S)
        else:
            raise DhschedError(f"the generator of {session.live} ended although its live goes on")
    finally:
        await cancel(running)


async def play(runner: AvatarRunner) -> None:
    await runner.start()
    try:
        await runner.wait_for_complete()
    finally:
        await runner.aclose()


class Runner(AvatarRunner):  # type: ignore[misc, unused-ignore]
    """LiveKit's runner, which publishes the picture beside the sound.

    By itself it waits for a subscriber of the sound before it publishes the picture: then the first picture is one
    negotiation later, and where nobody takes the sound nobody sees it."""

    async def _publish_track(self) -> None:
        async with self._lock:
            await self._room_connected_fut
            me, source = self._room.local_participant, rtc.TrackSource
            sound = rtc.LocalAudioTrack.create_audio_track("avatar_audio", self._audio_source)
            picture = rtc.LocalVideoTrack.create_video_track("avatar_video", self._video_source)
            self._audio_publication, self._video_publication = await asyncio.gather(
                me.publish_track(sound, rtc.TrackPublishOptions(source=source.SOURCE_MICROPHONE)),
                me.publish_track(picture, rtc.TrackPublishOptions(source=source.SOURCE_CAMERA)),
            )
            both = (self._audio_publication, self._video_publication)
            subscribed = [asyncio.ensure_future(each.wait_for_subscription()) for each in both]
            try:
                # Nothing is said to an empty room.
                await asyncio.wait(subscribed, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel(*subscribed)


class Receiver(DataStreamAudioReceiver):  # type: ignore[misc, unused-ignore]
    """The audio of one agent. If a report to the agent fails, the avatar goes on: the live of an agent that is gone
    ends by itself, and a crash would be blamed on the Worker."""

    def __init__(self, room: rtc.Room, agent: str) -> None:
        super().__init__(room, sender_identity=agent or None)
        self._agent = agent
        self._to = room
        self._listens = False

    async def start(self) -> None:
        """Wait for the agent, and take its audio from then on. LiveKit's runner starts its receiver again."""
        if not self._listens:
            await super().start()
            self._listens = True

    async def aclose(self) -> None:
        """End the receiver, once: LiveKit's runner ends its receiver, too."""
        if self._listens:
            self._listens = False
            await super().aclose()

    async def notify_playback_finished(self, playback_position: float, interrupted: bool) -> None:
        said = {"playback_position": playback_position, "interrupted": interrupted}
        await self._notify(FINISHED, json.dumps(said))

    async def notify_playback_started(self) -> None:
        await self._notify(STARTED, "")

    async def _notify(self, method: str, payload: str) -> None:
        for _ in range(NOTIFIES_MAX):
            try:
                await self._to.local_participant.perform_rpc(
                    destination_identity=self._agent, method=method, payload=payload
                )
                return
            except rtc.RpcError as error:
                log.info("the agent was not told", method=method, agent=self._agent, error=str(error))
            await asyncio.sleep(NOTIFY_EVERY_S)


class Reported(VideoGenerator):  # type: ignore[misc, unused-ignore]
    """A generator that reports to the agent how much was played: the next generation is sent the rest."""

    def __init__(self, generator: VideoGenerator, place: Place) -> None:
        self._generator = generator
        self._place = place
        self._speaks = False
        self._played_s = 0.0
        self._reported_s = 0.0

    async def push_audio(self, frame: rtc.AudioFrame | AudioSegmentEnd) -> None:
        self._speaks = self._speaks or isinstance(frame, rtc.AudioFrame)
        await self._generator.push_audio(frame)

    def clear_buffer(self) -> Coroutine[None, None, None] | None:
        self._begin_anew()
        clearing: Coroutine[None, None, None] | None = self._generator.clear_buffer()
        return clearing

    async def __aiter__(self) -> AsyncIterator[rtc.VideoFrame | rtc.AudioFrame | AudioSegmentEnd]:
        async for frame in self._generator:
            yield frame
            # The next frame is asked for when this one is on its way to the viewers.
            if isinstance(frame, AudioSegmentEnd):
                self._begin_anew()
            elif self._speaks and isinstance(frame, rtc.AudioFrame):
                self._played_s += frame.duration
                if self._played_s >= self._reported_s + REPORT_S:
                    self._reported_s = self._played_s
                    await self._report()

    def _begin_anew(self) -> None:
        self._speaks, self._played_s, self._reported_s = False, 0.0, 0.0

    async def _report(self) -> None:
        agent = self._place.call.agent
        if agent and not self._place.disconnected.is_set():
            played = f"{max(0.0, self._played_s - BUFFERED_S):.3f}"
            await self._place.room.local_participant.publish_data(
                played, reliable=False, destination_identities=[agent], topic=PLAYED_TOPIC
            )
