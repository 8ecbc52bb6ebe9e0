"""What a viewer with livekit-client in Chromium sees of an avatar."""

from __future__ import annotations

from tests.harness.livekit_avatar import brightness
from tests.harness.livekit_browser import Viewer
from tests.harness.livekit_client import Server, publishing
from tests.harness.livekit_rig import rig, speak, speaking_agent


async def test_a_participant_is_seen_with_its_picture(livekit: Server, viewer: Viewer) -> None:
    async with livekit.joined("anna") as anna, publishing(anna):
        await viewer.sees("anna")
        assert abs((await viewer.get("brightness"))["anna"] - 200) < 40
        assert await viewer.get("identities()") == ["anna"]


async def test_a_killed_avatar_is_seen_and_heard_again(livekit: Server, viewer: Viewer) -> None:
    async with rig(livekit, workers=2) as made, speaking_agent(made) as (_, avatar):
        await viewer.sees("anna~1")
        await speak(avatar, 30)
        await viewer.hears("anna~1")
        (await made.owner(avatar.live_id)).kill()
        await viewer.sees("anna~2")
        assert abs((await viewer.get("brightness"))["anna~2"] - brightness(2)) < 30
        await viewer.hears("anna~2")
        assert await viewer.get("epoch") == 2
        assert await viewer.get("state") == "connected"
