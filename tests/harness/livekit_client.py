"""Participants for tests, by LiveKit's own SDK: one that publishes, one that watches and remembers what came."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from livekit import api, rtc

from dhsched.local.waiting import until

WAIT_S = 60.0


@dataclass
class Server:
    """A LiveKit server, and a room of this test's own."""

    url: str
    key: str
    secret: str = field(repr=False)
    room: str = field(default_factory=lambda: "room-" + secrets.token_hex(4))

    @property
    def environment(self) -> dict[str, str]:
        return {"LIVEKIT_URL": self.url, "LIVEKIT_API_KEY": self.key, "LIVEKIT_API_SECRET": self.secret}

    def token(self, identity: str, *, attributes: Mapping[str, str] | None = None, kind: str = "") -> str:
        token = api.AccessToken(self.key, self.secret).with_identity(identity).with_attributes(dict(attributes or {}))
        if kind:
            token = token.with_kind(kind)  # type: ignore[arg-type, unused-ignore]
        grants = api.VideoGrants(room_join=True, room=self.room, can_update_own_metadata=True)
        return str(token.with_grants(grants).to_jwt())

    @asynccontextmanager
    async def joined(
        self, identity: str, *, attributes: Mapping[str, str] | None = None, kind: str = "", takes: bool = True
    ) -> AsyncIterator[rtc.Room]:
        """Join; one that does not take receives nothing that it does not subscribe to."""
        room = rtc.Room()
        options = rtc.RoomOptions(auto_subscribe=takes)
        await room.connect(self.url, self.token(identity, attributes=attributes, kind=kind), options)
        try:
            yield room
        finally:
            await room.disconnect()

    @asynccontextmanager
    async def watching(self, identity: str = "viewer", *, kind: str = "") -> AsyncIterator[Watcher]:
        room = rtc.Room()
        watcher = Watcher(room)
        await room.connect(self.url, self.token(identity, kind=kind))
        try:
            yield watcher
        finally:
            await watcher.close()

    @asynccontextmanager
    async def administered(self) -> AsyncIterator[api.LiveKitAPI]:
        async with api.LiveKitAPI(self.url.replace("ws", "http", 1), self.key, self.secret) as made:
            yield made

    async def identities(self) -> list[str]:
        async with self.administered() as lk:
            listed = await lk.room.list_participants(api.ListParticipantsRequest(room=self.room))
        return sorted(each.identity for each in listed.participants)


class Watcher:
    """A participant that receives everything, and remembers of each identity the pictures and the sound."""

    def __init__(self, room: rtc.Room) -> None:
        self.room = room
        self.pictures: dict[str, int] = {}
        self.brightness: dict[str, int] = {}  # Of the middle of the last picture.
        self.loud_s: dict[str, float] = {}  # How much sound came that was no silence.
        self.seen_at: dict[str, list[float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        room.on("track_subscribed", self._on_track)

    def _on_track(
        self, track: rtc.Track, publication: rtc.RemoteTrackPublication, participant: rtc.RemoteParticipant
    ) -> None:
        follow = self._follow_video if track.kind == rtc.TrackKind.KIND_VIDEO else self._follow_audio
        task = asyncio.create_task(follow(track, participant.identity))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow_video(self, track: rtc.Track, identity: str) -> None:
        async for event in rtc.VideoStream(track, capacity=1):
            frame = event.frame.convert(rtc.VideoBufferType.RGBA)
            middle = (frame.height // 2 * frame.width + frame.width // 2) * 4
            self.brightness[identity] = frame.data[middle]
            self.pictures[identity] = self.pictures.get(identity, 0) + 1
            self.seen_at.setdefault(identity, []).append(time.monotonic())

    async def _follow_audio(self, track: rtc.Track, identity: str) -> None:
        async for event in rtc.AudioStream(track, sample_rate=24_000, num_channels=1):
            if max(abs(sample) for sample in event.frame.data) > 1_000:
                self.loud_s[identity] = self.loud_s.get(identity, 0.0) + event.frame.duration

    async def sees(self, identity: str, more: int = 3) -> None:
        """Wait until `more` further pictures of this identity have come."""
        wanted = self.pictures.get(identity, 0) + more
        await until(lambda: self.pictures.get(identity, 0) >= wanted, f"{more} pictures of {identity}", WAIT_S)

    async def close(self) -> None:
        await self.room.disconnect()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def publishing(room: rtc.Room, *, brightness: int = 200) -> AsyncIterator[None]:
    """Publish a picture of one brightness, and silence, until the block is left."""
    video, audio = rtc.VideoSource(64, 64), rtc.AudioSource(24_000, 1)
    options = rtc.TrackPublishOptions
    me = room.local_participant
    camera = options(source=rtc.TrackSource.SOURCE_CAMERA, simulcast=False)
    await me.publish_track(rtc.LocalVideoTrack.create_video_track("v", video), camera)
    microphone = options(source=rtc.TrackSource.SOURCE_MICROPHONE)
    await me.publish_track(rtc.LocalAudioTrack.create_audio_track("a", audio), microphone)

    async def feed() -> None:
        picture = bytes([brightness, brightness, brightness, 255]) * (64 * 64)
        while True:
            video.capture_frame(rtc.VideoFrame(64, 64, rtc.VideoBufferType.RGBA, picture))
            await asyncio.sleep(1 / 15)

    feeding = asyncio.create_task(feed())
    try:
        yield
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
