"""A Worker of avatars as one might write it at first: every generation joins with the same identity. It is unsafe.

python -m tests.harness.livekit_naive NAME DISPATCH LOCKS
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from livekit import api, rtc

from dhsched.worker import Session, run
from tests.harness.livekit_avatar import brightness
from tests.harness.livekit_client import publishing

BUSY_S = 50.0  # In the middle of something: a runtime has `teardown_s` to end.


async def naive(session: Session) -> None:
    epoch = str(session.generation.epoch)
    token = api.AccessToken(os.environ["LIVEKIT_API_KEY"], os.environ["LIVEKIT_API_SECRET"])
    token = token.with_identity("anna").with_attributes({"epoch": epoch})
    grants = api.VideoGrants(room_join=True, room=session.metadata["livekit"]["room"])

    async def show() -> None:
        await session.claimed.wait()
        room = rtc.Room()
        await room.connect(os.environ["LIVEKIT_URL"], token.with_grants(grants).to_jwt())
        async with publishing(room, brightness=brightness(session.generation.epoch)):
            await session.stopping.wait()
            await asyncio.sleep(BUSY_S)
        await room.disconnect()

    showing = asyncio.create_task(show())
    async for _ in session.inputs():
        pass
    await showing


if __name__ == "__main__":
    name, dispatch, locks = sys.argv[1:4]
    run(naive, name=name, dispatch=dispatch, lock_folder=Path(locks), pool="gpu", capacity=2, teardown_s=60)
