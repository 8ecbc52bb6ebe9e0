"""A Worker is frozen, its live goes on elsewhere, and the Worker is thawed: who is in the room then?"""

from __future__ import annotations

from livekit import rtc

from dhsched.local.waiting import until
from tests.harness.livekit_client import WAIT_S, Server, Watcher
from tests.harness.livekit_rig import Rig, rig, speaking_agent


def epochs(viewer: Watcher) -> dict[str, str]:
    return {each.identity: each.attributes.get("epoch", "") for each in viewer.room.remote_participants.values()}


async def moved(made: Rig, live_id: str) -> None:
    async with made.client() as client:

        async def elsewhere() -> bool:
            return (await client.get(live_id)).epoch == 2

        await until(elsewhere, "the next generation", WAIT_S)


async def test_with_one_identity_the_thawed_worker_throws_the_owner_out(livekit: Server) -> None:
    """This is why there are seats: the naive way is unsafe."""
    evicted: list[str] = []
    async with livekit.watching() as viewer, rig(livekit, workers=0) as made:
        zombie = await made.avatars("gpu-0", module="tests.harness.livekit_naive")
        await made.until_workers(1)
        async with made.client() as client:
            await client.create("anna", live_id="L", metadata={"livekit": {"room": livekit.room}})
        await viewer.sees("anna")
        zombie.freeze()
        # The server gives up the silent connection before there is a Worker to go on with.
        await until(lambda: not epochs(viewer), "the end of the silent participant", WAIT_S)
        await made.avatars("gpu-1", module="tests.harness.livekit_naive")
        await moved(made, "L")
        await until(lambda: epochs(viewer) == {"anna": "2"}, "the next generation in the room", WAIT_S)

        def on_left(participant: rtc.RemoteParticipant) -> None:
            evicted.append(participant.attributes.get("epoch", ""))

        viewer.room.on("participant_disconnected", on_left)
        zombie.thaw()
        await until(lambda: "2" in evicted, "the eviction of the owner", WAIT_S)


async def test_with_a_seat_per_epoch_the_owner_stays_and_the_thawed_worker_is_removed(livekit: Server) -> None:
    left: list[str] = []
    async with livekit.watching() as viewer, rig(livekit, workers=2) as made, speaking_agent(made) as (_, avatar):
        await viewer.sees("anna~1")
        zombie = await made.owner(avatar.live_id)
        zombie.freeze()
        await moved(made, avatar.live_id)
        await viewer.sees("anna~2")
        assert avatar.avatar_identity == "anna~2"
        viewer.room.on("participant_disconnected", lambda participant: left.append(participant.identity))
        async with made.client() as client:
            zombie.thaw()

            async def departed() -> bool:
                """The thawed Worker has learned that it was called lost, and has come back as a new boot."""
                return len([each async for each in client.workers(status="ready")]) == 2

            await until(departed, "the thawed Worker's next boot", WAIT_S)
        await until(lambda: "anna~1" not in viewer.room.remote_participants, "a room without the zombie", WAIT_S)
        await viewer.sees("anna~2", more=10)
        assert "anna~2" not in left
        assert avatar.avatar_identity == "anna~2"
