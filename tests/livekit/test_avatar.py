"""An avatar on our Workers, used by an agent of LiveKit."""

from __future__ import annotations

import asyncio

import pytest
from livekit import rtc

from dhsched.client import Refused
from dhsched.livekit.seats import CLAIMED
from dhsched.local.waiting import until
from tests.harness.livekit_avatar import brightness
from tests.harness.livekit_client import WAIT_S, Server, Watcher
from tests.harness.livekit_rig import rig, speak, speaking_agent


async def test_an_avatar_speaks_and_its_agent_is_told(livekit: Server) -> None:
    async with livekit.watching() as viewer, rig(livekit) as made, speaking_agent(made) as (_, avatar):
        assert avatar.avatar_identity == "anna~1"
        await viewer.sees("anna~1")
        assert abs(viewer.brightness["anna~1"] - brightness(1)) < 30
        attributes = viewer.room.remote_participants["anna~1"].attributes
        assert attributes["dhsched.live"] == avatar.live_id
        assert attributes["dhsched.epoch"] == "1"
        assert attributes["lk.publish_on_behalf"] == "agent"
        await speak(avatar, 2)
        assert avatar.output is not None
        played = await asyncio.wait_for(avatar.output.wait_for_playout(), WAIT_S)
        assert not played.interrupted
        assert played.playback_position == pytest.approx(2.0, abs=0.2)
        await until(lambda: viewer.loud_s.get("anna~1", 0) > 1, "what was said", WAIT_S)


async def test_who_takes_the_picture_and_no_sound_sees_it(livekit: Server) -> None:
    """And nobody else takes the sound either."""

    def take(publication: rtc.RemoteTrackPublication, _: rtc.RemoteParticipant) -> None:
        publication.set_subscribed(publication.kind == rtc.TrackKind.KIND_VIDEO)

    async with livekit.joined("viewer", takes=False) as room, rig(livekit) as made:
        viewer = Watcher(room)
        room.on("track_published", take)
        async with speaking_agent(made, takes=False):
            await viewer.sees("anna~1")
            assert not viewer.loud_s
        await viewer.close()


async def test_an_interruption_stops_the_voice(livekit: Server) -> None:
    async with livekit.watching() as viewer, rig(livekit) as made, speaking_agent(made) as (_, avatar):
        await speak(avatar, 60)
        await until(lambda: viewer.loud_s.get("anna~1", 0) > 0.3, "the voice", WAIT_S)
        assert avatar.output is not None
        avatar.output.clear_buffer()
        played = await asyncio.wait_for(avatar.output.wait_for_playout(), WAIT_S)
        assert played.interrupted
        assert 0 < played.playback_position < 50


async def test_a_killed_worker_is_replaced_and_the_sentence_goes_on(livekit: Server) -> None:
    async with livekit.watching() as viewer, rig(livekit, workers=2) as made, speaking_agent(made) as (_, avatar):
        assert avatar.output is not None
        await viewer.sees("anna~1")
        await speak(avatar, 12)
        await until(lambda: viewer.loud_s.get("anna~1", 0) > 1.5, "the voice of the first", WAIT_S)
        (await made.owner(avatar.live_id)).kill()
        await viewer.sees("anna~2")
        assert abs(viewer.brightness["anna~2"] - brightness(2)) < 30
        assert avatar.avatar_identity == "anna~2"
        played = await asyncio.wait_for(avatar.output.wait_for_playout(), 100)
        assert not played.interrupted
        assert played.playback_position == pytest.approx(12.0, abs=0.5)
        # What the first had said is not said again, but for what may not have been heard.
        heard = viewer.loud_s["anna~1"] + viewer.loud_s["anna~2"]
        assert 0 < viewer.loud_s["anna~2"] < 12
        assert heard > 9
        await until(lambda: "anna~1" not in viewer.room.remote_participants, "the removal of the first", WAIT_S)


async def test_a_drain_changes_faces_at_the_end_of_the_sentence(livekit: Server) -> None:
    async with livekit.watching() as viewer, rig(livekit, workers=2) as made, speaking_agent(made) as (_, avatar):
        await viewer.sees("anna~1")
        happened = follow(viewer.room, "anna~2")
        await speak(avatar, 8)
        assert avatar.output is not None
        async with made.client() as client:

            async def told() -> bool:
                return (await client.get(avatar.live_id)).pending == 1  # An item that says so is done at the end.

            await until(told, "the news that it speaks", WAIT_S)
            worker = (await client.get(avatar.live_id)).worker
            assert worker is not None
            await client.drain(worker)
            played = await asyncio.wait_for(avatar.output.wait_for_playout(), WAIT_S)
            assert not played.interrupted
            assert avatar.avatar_identity == "anna~1"
            await viewer.sees("anna~2")
            assert (await client.get(avatar.live_id)).epoch == 2
        assert viewer.loud_s.get("anna~2", 0) == 0
        assert happened[:3] == ["joined", "claimed", "published"], "it was in the room before its claim, with no track"
        await until(lambda: "anna~1" not in viewer.room.remote_participants, "the end of the first", WAIT_S)


def follow(room: rtc.Room, identity: str) -> list[str]:
    """Return a list that grows with what this participant does."""
    happened: list[str] = []

    def note(what: str, participant: rtc.RemoteParticipant) -> None:
        if participant.identity == identity:
            happened.append(what)

    def joined(participant: rtc.RemoteParticipant) -> None:
        note("joined with its claim" if participant.attributes.get(CLAIMED) else "joined", participant)

    def changed(attributes: dict[str, str], participant: rtc.RemoteParticipant) -> None:
        if CLAIMED in attributes:
            note("claimed", participant)

    room.on("participant_connected", joined)
    room.on("participant_attributes_changed", changed)
    room.on("track_published", lambda _, participant: note("published", participant))
    return happened


async def test_the_agent_is_told_why_there_is_no_avatar(livekit: Server) -> None:
    async with rig(livekit) as made:
        async with made.client() as client:
            for n in range(2):
                await client.create("anna", metadata={"livekit": {"room": f"{livekit.room}-{n}", "agent": "nobody"}})
        with pytest.raises(Refused, match="full") as refused:
            async with speaking_agent(made, wait_s=0):
                pass
        assert refused.value.status == 503


async def test_the_live_ends_with_the_session(livekit: Server) -> None:
    async with rig(livekit) as made:
        async with speaking_agent(made) as (_, avatar):
            live_id = avatar.live_id
        async with made.client() as client:

            async def ended() -> bool:
                return (await client.get(live_id)).state == "ended"

            await until(ended, "the end of the live", WAIT_S)

        async def empty() -> bool:
            return not await livekit.identities()

        await until(empty, "an empty room", WAIT_S)
