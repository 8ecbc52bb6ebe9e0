"""The other fenced way into a room of LiveKit: our room is the one participant, by WHIP, and Workers have no key."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dhsched.local.waiting import until
from tests.browser.watching import Stage, stage
from tests.harness.ingest import is_of
from tests.harness.livekit_browser import Viewer
from tests.harness.livekit_client import WAIT_S, Server

ONE = "lisa"


@asynccontextmanager
async def sent(livekit: Server, folder: Path) -> AsyncIterator[Stage]:
    """A deployment whose room sends its live to the server as one participant."""
    if "LIVEKIT_URL" in os.environ:
        pytest.skip("a server of LiveKit takes WHIP at its ingress, under another address")
    (folder / "demo.token").write_text(livekit.token(ONE, kind="ingress"))
    where = livekit.url.replace("ws", "http", 1) + "/whip"
    async with stage(None, folder, room=("--whip", where, "--whip-token-file", str(folder / "{live}.token"))) as at:
        yield at


async def until_shows(viewer: Viewer, epoch: int) -> int:
    """Wait for a picture of this generation; return how many pictures of all came by then."""

    async def shows() -> bool:
        corners = (await viewer.get("corners")).get(ONE, [])
        return bool(corners) and is_of(corners[-1], epoch)

    await until(shows, f"a picture of epoch {epoch} in the browser", WAIT_S)
    return len((await viewer.get("corners"))[ONE])


async def test_a_killed_worker_s_live_goes_on_in_the_same_track(
    livekit: Server, viewer: Viewer, tmp_path: Path
) -> None:
    async with sent(livekit, tmp_path) as at:
        await until_shows(viewer, 1)
        at.owner(await at.live()).kill()
        await until_shows(viewer, 2)
        assert await viewer.get("tracks") == 2, "the picture and the sound, subscribed once"
        assert await viewer.get("identities()") == [ONE]


async def test_a_thawed_worker_never_reaches_the_room(livekit: Server, viewer: Viewer, tmp_path: Path) -> None:
    async with sent(livekit, tmp_path) as at:
        await until_shows(viewer, 1)
        zombie = at.owner(await at.live())
        zombie.freeze()
        assert at.owner(await at.until_epoch(2)) is not zombie
        before = await until_shows(viewer, 2)
        zombie.thaw()
        await viewer.sees(ONE, more=30)
        corners = (await viewer.get("corners"))[ONE][before:]
        assert all(is_of(corner, 2) for corner in corners)
        assert await viewer.get("identities()") == [ONE]
        assert await viewer.get("tracks") == 2
