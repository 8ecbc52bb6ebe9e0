"""Rooms and participants of the stand-in for livekit-server (livekit_server.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

from aiohttp import web
from aiortc import (
    MediaStreamTrack,
    RTCBundlePolicy,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.contrib.media import MediaRelay
from aiortc.sdp import candidate_from_sdp
from livekit.protocol import models, rtc

from tests.harness.livekit_candidates import ANSWER_S, Candidates, settled, tell_failure

ONE_TRANSPORT = RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
RELIABLE, LOSSY = "_reliable", "_lossy"
BUFFERED_MAX = 4 * 2**20  # Lossy packets are dropped while a channel has more than this to send.


class Published:
    """One track of one participant, once its media arrives."""

    def __init__(self, owner: Member, info: models.TrackInfo, media: MediaStreamTrack) -> None:
        self.owner = owner
        self.info = info
        self.media = media
        self.relay = MediaRelay()


class Room:
    def __init__(self, name: str) -> None:
        self.name = name
        self.sid = "RM_" + secrets.token_hex(6)
        self.participants: dict[str, Member] = {}

    def others(self, member: Member) -> list[Member]:
        return [each for each in self.participants.values() if each is not member]

    async def tell_others(self, member: Member) -> None:
        """Send what is now known of a participant to everybody else."""
        update = rtc.ParticipantUpdate(participants=[member.info()])
        for other in self.others(member):
            await other.send(update=update)

    async def published(self, track: Published) -> None:
        await self.tell_others(track.owner)
        for other in self.others(track.owner):
            if other.auto_subscribe:
                other.subscribe(track)

    def pass_on(self, sender: Member, packet: models.DataPacket, channel: str) -> None:
        """Send a data packet to whom it names, or to everybody else."""
        packet.participant_identity, packet.participant_sid = sender.identity, sender.sid
        wanted = {*packet.destination_identities}
        if packet.WhichOneof("value") == "user":
            packet.user.participant_identity, packet.user.participant_sid = sender.identity, sender.sid
            wanted |= {*packet.user.destination_identities}
        data = packet.SerializeToString()
        for other in self.others(sender):
            if not wanted or other.identity in wanted:
                other.send_data(data, channel)


class Rooms:
    def __init__(self) -> None:
        self._rooms: dict[str, Room] = {}

    def room(self, name: str) -> Room:
        return self._rooms.setdefault(name, Room(name))

    def all(self) -> Iterator[Member]:
        for room in self._rooms.values():
            yield from [*room.participants.values()]


class Member:
    """A participant as others see it: who it is, and what it publishes."""

    auto_subscribe = False

    def __init__(self, room: Room, claims: dict[str, Any]) -> None:
        self.room = room
        self.identity: str = claims["sub"]
        self.sid = "PA_" + secrets.token_hex(6)
        self.gone = False
        self.tracks: list[Published] = []
        self._name = claims.get("name", "")
        self._metadata = claims.get("metadata", "")
        self._attributes: dict[str, str] = dict(claims.get("attributes") or {})
        kinds = {"agent": models.ParticipantInfo.AGENT, "ingress": models.ParticipantInfo.INGRESS}
        self._kind = kinds.get(claims.get("kind", ""), models.ParticipantInfo.STANDARD)
        self._grants: dict[str, Any] = claims["video"]
        self._joined_ms = int(time.time() * 1000)
        self._requested: dict[str, models.TrackInfo] = {}  # By the client's id of the track, until its media arrives.
        self._publisher: RTCPeerConnection | None = None
        self._telling: asyncio.Task[None] | None = None

    def info(self) -> models.ParticipantInfo:
        grants = self._grants
        return models.ParticipantInfo(
            sid=self.sid,
            identity=self.identity,
            name=self._name,
            metadata=self._metadata,
            attributes=self._attributes,
            kind=self._kind,
            state=models.ParticipantInfo.DISCONNECTED if self.gone else models.ParticipantInfo.ACTIVE,
            joined_at=self._joined_ms // 1000,
            joined_at_ms=self._joined_ms,
            tracks=[track.info for track in self.tracks],
            is_publisher=bool(self.tracks),
            permission=models.ParticipantPermission(
                can_subscribe=grants.get("canSubscribe", True),
                can_publish=grants.get("canPublish", True),
                can_publish_data=grants.get("canPublishData", True),
                can_update_metadata=grants.get("canUpdateOwnMetadata", False),
                hidden=grants.get("hidden", False),
            ),
        )

    async def enter(self) -> None:
        """Take the identity in the room. The last joiner wins: who had the identity is sent away."""
        before = self.room.participants.get(self.identity)
        if before is not None:
            await before.leave(models.DUPLICATE_IDENTITY)
        self.room.participants[self.identity] = self
        await self.room.tell_others(self)

    async def leave(self, reason: models.DisconnectReason) -> None:
        if self.gone:
            return
        self.gone = True
        if self.room.participants.get(self.identity) is self:
            del self.room.participants[self.identity]
        self.tracks.clear()
        await self.room.tell_others(self)
        if self._publisher is not None:
            await self._publisher.close()

    # -- what it publishes

    async def answer(self, sdp: str) -> str:
        pc = self._publisher
        if pc is None:
            pc = self._publisher = RTCPeerConnection(ONE_TRANSPORT)
            pc.on("track", self._on_track)
            pc.on("datachannel", self._on_channel)
        await pc.setRemoteDescription(RTCSessionDescription(sdp, "offer"))
        await pc.setLocalDescription(await pc.createAnswer())
        return pc.localDescription.sdp

    def _on_track(self, media: MediaStreamTrack) -> None:
        kind = models.TrackType.VIDEO if media.kind == "video" else models.TrackType.AUDIO
        info = self._requested.pop(media.id, None)
        if info is None:
            # Some clients name the track otherwise in their offer: take the first request of the same kind.
            cid = next((cid for cid, each in self._requested.items() if each.type == kind), None)
            info = self._requested.pop(cid) if cid is not None else self._unrequested(kind)
        track = Published(self, info, media)
        self.tracks.append(track)
        telling = self._telling = asyncio.create_task(self.room.published(track))
        telling.add_done_callback(tell_failure)

    def _unrequested(self, kind: models.TrackType) -> models.TrackInfo:
        source = models.TrackSource.CAMERA if kind == models.TrackType.VIDEO else models.TrackSource.MICROPHONE
        return models.TrackInfo(sid="TR_" + secrets.token_hex(6), type=kind, source=source)

    def _on_channel(self, channel: RTCDataChannel) -> None:
        @channel.on("message")  # type: ignore[untyped-decorator, unused-ignore]
        def _(data: Any) -> None:
            if isinstance(data, bytes) and channel.label in (RELIABLE, LOSSY):
                self.room.pass_on(self, models.DataPacket.FromString(data), channel.label)

    # -- what it receives, if it receives anything

    async def send(self, **message: Any) -> None:
        pass

    def send_data(self, data: bytes, channel: str) -> None:
        pass

    def subscribe(self, track: Published) -> None:
        pass


class WhipParticipant(Member):
    """A publisher that came by WHIP: one offer, one answer, and an end when its connection is lost."""

    async def publish(self, offer: str) -> str:
        await self.enter()
        answer = await self.answer(offer)
        assert self._publisher is not None
        self._publisher.on("connectionstatechange", self._connection_changed)
        return answer

    async def _connection_changed(self) -> None:
        if self._publisher is not None and self._publisher.connectionState in ("failed", "closed"):
            await self.leave(models.MEDIA_FAILURE)


class Participant(Member):
    """A participant with a signal connection and a peer connection of its own for what it receives."""

    def __init__(
        self, room: Room, claims: dict[str, Any], socket: web.WebSocketResponse, *, auto_subscribe: bool
    ) -> None:
        super().__init__(room, claims)
        self.auto_subscribe = auto_subscribe
        self.left = False
        self._socket = socket
        self._subscriber = RTCPeerConnection(ONE_TRANSPORT)
        self._channels = {
            RELIABLE: self._subscriber.createDataChannel(RELIABLE),
            LOSSY: self._subscriber.createDataChannel(LOSSY, maxRetransmits=0),
        }
        self._waiting: dict[str, list[bytes]] = {RELIABLE: [], LOSSY: []}
        for label, channel in self._channels.items():
            channel.on("open", lambda label=label: self._on_open(label))
        self._wanted: asyncio.Queue[Published | None] = asyncio.Queue()
        self._subscribed: set[str] = set()
        self._answered: asyncio.Future[rtc.SessionDescription] | None = None
        self._offers: asyncio.Queue[rtc.SessionDescription] = asyncio.Queue()
        self._publishing, self._receiving = Candidates(), Candidates()
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, *, ping_s: int, silent_s: int) -> None:
        await self.enter()
        room = self.room
        await self.send(
            join=rtc.JoinResponse(
                room=models.Room(sid=room.sid, name=room.name, num_participants=len(room.participants)),
                participant=self.info(),
                other_participants=[each.info() for each in room.others(self)],
                server_info=models.ServerInfo(version="1.9.0", protocol=15),
                server_version="1.9.0",
                subscriber_primary=True,
                ping_interval=ping_s,
                ping_timeout=silent_s,
                fast_publish=False,
            )
        )
        self._tasks = [asyncio.create_task(self._negotiate()), asyncio.create_task(self._answer_offers())]
        for task in self._tasks:
            task.add_done_callback(tell_failure)
        self._wanted.put_nowait(None)
        if self.auto_subscribe:
            for other in room.others(self):
                for track in other.tracks:
                    self.subscribe(track)

    async def leave(self, reason: models.DisconnectReason) -> None:
        if self.gone:
            return
        await super().leave(reason)
        if not self.left:
            await self.send(leave=rtc.LeaveRequest(reason=reason, action=rtc.LeaveRequest.DISCONNECT))
        await self.hang_up()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await self._subscriber.close()

    async def hang_up(self) -> None:
        """Close the signal connection without a word."""
        with contextlib.suppress(ConnectionError):
            await self._socket.close()

    async def send(self, **message: Any) -> None:
        if not self._socket.closed:
            with contextlib.suppress(ConnectionError):
                await self._socket.send_bytes(rtc.SignalResponse(**message).SerializeToString())

    # -- requests of the client

    async def hear(self, asked: rtc.SignalRequest) -> None:
        match asked.WhichOneof("message"):
            case "offer":
                self._offers.put_nowait(asked.offer)
            case "answer":
                if self._answered is not None and not self._answered.done():
                    self._answered.set_result(asked.answer)
            case "trickle":
                await self._add_candidate(asked.trickle)
            case "add_track":
                await self._add_track(asked.add_track)
            case "mute":
                await self._mute(asked.mute)
            case "subscription":
                self._change_subscription(asked.subscription)
            case "update_metadata":
                await self._change_metadata(asked.update_metadata)
            case "ping":
                await self.send(pong=int(time.time() * 1000))
            case "ping_req":
                pong = rtc.Pong(last_ping_timestamp=asked.ping_req.timestamp, timestamp=int(time.time() * 1000))
                await self.send(pong_resp=pong)

    async def _answer_offers(self) -> None:
        """Answer what the client offers to publish, one offer at a time."""
        while True:
            offer = await self._offers.get()
            sdp = await self._publishing.complete(offer.sdp)
            answer = rtc.SessionDescription(type="answer", sdp=await self.answer(sdp), id=offer.id)
            await self.send(answer=answer)
            await self._unpublish_what_left(offer.sdp)
            assert self._publisher is not None
            await settled(self._publisher)

    async def _add_candidate(self, trickle: rtc.TrickleRequest) -> None:
        publishes = trickle.target == rtc.SignalTarget.PUBLISHER
        said = json.loads(trickle.candidateInit)
        if not (text := said.get("candidate")):
            return
        if not (self._publishing if publishes else self._receiving).takes(text):
            pc = self._publisher if publishes else self._subscriber
            assert pc is not None
            candidate = candidate_from_sdp(text.split(":", 1)[1])
            candidate.sdpMid, candidate.sdpMLineIndex = said.get("sdpMid"), said.get("sdpMLineIndex")
            with contextlib.suppress(ValueError):
                await pc.addIceCandidate(candidate)

    async def _add_track(self, asked: rtc.AddTrackRequest) -> None:
        info = models.TrackInfo(
            sid="TR_" + secrets.token_hex(6),
            name=asked.name,
            type=asked.type,
            source=asked.source,
            width=asked.width,
            height=asked.height,
            muted=asked.muted,
            mime_type="video/vp8" if asked.type == models.TrackType.VIDEO else "audio/opus",
            stream=asked.stream,
        )
        self._requested[asked.cid] = info
        await self.send(track_published=rtc.TrackPublishedResponse(cid=asked.cid, track=info))

    async def _unpublish_what_left(self, sdp: str) -> None:
        kept = [track for track in self.tracks if track.media.id in sdp or track.media.readyState == "live"]
        if len(kept) != len(self.tracks):
            self.tracks = kept
            await self.room.tell_others(self)

    async def _mute(self, asked: rtc.MuteTrackRequest) -> None:
        for track in self.tracks:
            if track.info.sid == asked.sid:
                track.info.muted = asked.muted
        await self.room.tell_others(self)

    def _change_subscription(self, asked: rtc.UpdateSubscription) -> None:
        for other in self.room.others(self):
            for track in other.tracks:
                if asked.subscribe and track.info.sid in asked.track_sids:
                    self.subscribe(track)

    async def _change_metadata(self, asked: rtc.UpdateParticipantMetadata) -> None:
        if self._grants.get("canUpdateOwnMetadata"):
            self._metadata = asked.metadata or self._metadata
            self._name = asked.name or self._name
            self._attributes.update(asked.attributes)
            self._attributes = {name: value for name, value in self._attributes.items() if value}
            await self.send(update=rtc.ParticipantUpdate(participants=[self.info()]))
            await self.room.tell_others(self)
            reason = rtc.RequestResponse.OK
        else:
            reason = rtc.RequestResponse.NOT_ALLOWED
        await self.send(request_response=rtc.RequestResponse(request_id=asked.request_id, reason=reason))

    # -- what the client receives

    def subscribe(self, track: Published) -> None:
        if track.info.sid not in self._subscribed:
            self._subscribed.add(track.info.sid)
            self._wanted.put_nowait(track)

    async def _negotiate(self) -> None:
        """Offer the tracks that are wanted, one offer at a time."""
        pc = self._subscriber
        while True:
            tracks = [await self._wanted.get()]
            # Connect with the channels alone: the first offer of a connection has no media.
            while tracks != [None] and not self._wanted.empty():
                tracks.append(self._wanted.get_nowait())
            added = [track for track in tracks if track is not None and not track.owner.gone]
            for track in added:
                sender = pc.addTransceiver(track.relay.subscribe(track.media), direction="sendonly").sender
                # Clients find whose track it is by these two names.
                sender._stream_id, sender._track_id = f"{track.owner.sid}|{track.info.sid}", track.info.sid
            await pc.setLocalDescription(await pc.createOffer())
            self._answered = asyncio.get_running_loop().create_future()
            await self.send(offer=rtc.SessionDescription(type="offer", sdp=pc.localDescription.sdp, id=1))
            async with asyncio.timeout(ANSWER_S):
                answer = await self._answered
            sdp = await self._receiving.complete(answer.sdp)
            await pc.setRemoteDescription(RTCSessionDescription(sdp, "answer"))
            for track in added:
                await track.owner.send(track_subscribed=rtc.TrackSubscribed(track_sid=track.info.sid))
            await settled(pc)

    def send_data(self, data: bytes, channel: str) -> None:
        far = self._channels[channel]
        if far.readyState == "connecting":
            self._waiting[channel].append(data)
        elif far.readyState == "open" and (channel == RELIABLE or far.bufferedAmount < BUFFERED_MAX):
            far.send(data)

    def _on_open(self, label: str) -> None:
        waiting, self._waiting[label] = self._waiting[label], []
        for data in waiting:
            self._channels[label].send(data)
