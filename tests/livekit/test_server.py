"""What the adapters rely on in a LiveKit server, with the real SDK: true of the stand-in and of the server itself."""

from __future__ import annotations

import asyncio
import os

import aiohttp
import numpy
import pytest
from aiortc import RTCPeerConnection, RTCSessionDescription, VideoStreamTrack
from av import VideoFrame
from livekit import api, rtc

from dhsched.local.waiting import until
from tests.harness.livekit_client import WAIT_S, Server, publishing


async def test_media_is_forwarded_and_the_publisher_is_told_of_its_first_subscriber(livekit: Server) -> None:
    async with livekit.watching() as viewer, livekit.joined("anna") as anna, publishing(anna):
        await viewer.sees("anna")
        assert abs(viewer.brightness["anna"] - 200) < 40
        (audio,) = [p for p in anna.local_participant.track_publications.values() if p.kind == rtc.TrackKind.KIND_AUDIO]
        await asyncio.wait_for(audio.wait_for_subscription(), WAIT_S)


async def test_who_joins_later_sees_what_is_published_already(livekit: Server) -> None:
    async with livekit.joined("anna") as anna, publishing(anna), livekit.watching() as viewer:
        await viewer.sees("anna")


async def test_participants_come_and_go_and_the_others_stay(livekit: Server) -> None:
    async with livekit.watching() as viewer, livekit.joined("anna") as anna, publishing(anna):
        await viewer.sees("anna")
        async with livekit.joined("bob") as bob, publishing(bob):
            await viewer.sees("bob")
            await anna.disconnect()
            await until(lambda: "anna" not in viewer.room.remote_participants, "the end of anna", WAIT_S)
            async with livekit.joined("carla") as carla, publishing(carla):
                await viewer.sees("carla")
                await viewer.sees("bob")


async def test_the_last_joiner_of_an_identity_wins(livekit: Server) -> None:
    reasons: list[int] = []
    async with livekit.joined("anna") as first:
        first.on("disconnected", reasons.append)
        async with livekit.joined("anna"):
            await until(lambda: reasons, "the end of the first", WAIT_S)
            assert reasons == [rtc.DisconnectReason.DUPLICATE_IDENTITY]
            assert await livekit.identities() == ["anna"]


async def test_methods_and_streams_reach_whom_they_are_for(livekit: Server) -> None:
    received: dict[str, bytes] = {}

    def receive(name: str, room: rtc.Room) -> None:
        def on_stream(reader: rtc.ByteStreamReader, sender: str) -> None:
            async def read() -> None:
                data = b"".join([chunk async for chunk in reader])
                received[f"{sender} to {name}"] = data

            tasks.append(asyncio.create_task(read()))

        room.register_byte_stream_handler("topic", on_stream)

    tasks: list[asyncio.Task[None]] = []
    async with livekit.joined("a") as a, livekit.joined("b") as b, livekit.joined("c") as c:
        receive("b", b)
        receive("c", c)
        b.local_participant.register_rpc_method("greet", lambda call: f"{call.payload}, {call.caller_identity}")
        await until(lambda: {"b", "c"} <= a.remote_participants.keys(), "both others", WAIT_S)
        said = await a.local_participant.perform_rpc(destination_identity="b", method="greet", payload="hello")
        assert said == "hello, a"
        with pytest.raises(rtc.RpcError):
            await a.local_participant.perform_rpc(destination_identity="c", method="greet", payload="hello")
        writer = await a.local_participant.stream_bytes("n", topic="topic", destination_identities=["b"])
        await writer.write(bytes(100_000))
        await writer.aclose()
        await until(lambda: "a to b" in received, "the stream", WAIT_S)
        assert received == {"a to b": bytes(100_000)}


async def test_attributes_of_a_token_and_later_ones_are_seen_by_others(livekit: Server) -> None:
    async with livekit.joined("a") as a, livekit.joined("b", attributes={"live": "L"}) as b:
        await until(lambda: "b" in a.remote_participants, "b", WAIT_S)
        assert a.remote_participants["b"].attributes["live"] == "L"
        await b.local_participant.set_attributes({"claimed": "1"})
        await until(lambda: a.remote_participants["b"].attributes.get("claimed"), "the new attribute", WAIT_S)
        assert a.remote_participants["b"].attributes["live"] == "L"


async def test_a_participant_is_listed_and_removed(livekit: Server) -> None:
    reasons: list[int] = []
    async with livekit.joined("a") as a, livekit.administered() as lk:
        a.on("disconnected", reasons.append)
        assert await livekit.identities() == ["a"]
        await lk.room.remove_participant(api.RoomParticipantIdentity(room=livekit.room, identity="a"))
        await until(lambda: reasons, "the removal", WAIT_S)
        assert reasons == [rtc.DisconnectReason.PARTICIPANT_REMOVED]
        with pytest.raises(api.TwirpError) as refused:
            await lk.room.remove_participant(api.RoomParticipantIdentity(room=livekit.room, identity="a"))
        assert refused.value.code == "not_found"


async def test_a_token_with_another_secret_is_refused(livekit: Server) -> None:
    other = Server(livekit.url, livekit.key, "another secret, which has thirty-two bytes")
    with pytest.raises(rtc.ConnectError):
        async with other.joined("a"):
            pass


class Grey(VideoStreamTrack):
    async def recv(self) -> VideoFrame:
        pts, time_base = await self.next_timestamp()
        frame = VideoFrame.from_ndarray(numpy.full((64, 64, 3), 120, numpy.uint8), format="rgb24")
        frame.pts, frame.time_base = pts, time_base
        return frame


async def test_a_publisher_comes_by_whip(livekit: Server) -> None:
    if "LIVEKIT_URL" in os.environ:
        pytest.skip("a server of LiveKit takes WHIP at its ingress, under another address")
    url = livekit.url.replace("ws", "http", 1)
    pc = RTCPeerConnection()
    async with livekit.watching() as viewer, aiohttp.ClientSession() as http:
        pc.addTrack(Grey())
        await pc.setLocalDescription(await pc.createOffer())
        headers = {"Authorization": f"Bearer {livekit.token('lisa')}", "Content-Type": "application/sdp"}
        async with http.post(f"{url}/whip", data=pc.localDescription.sdp, headers=headers) as response:
            assert response.status == 201
            where = response.headers["Location"]
            await pc.setRemoteDescription(RTCSessionDescription(await response.text(), "answer"))
        await viewer.sees("lisa")
        assert abs(viewer.brightness["lisa"] - 120) < 30
        async with http.delete(url + where, headers=headers) as response:
            assert response.status == 200
        await until(lambda: "lisa" not in viewer.room.remote_participants, "the end of the publisher", WAIT_S)
        await pc.close()
