"""How long a viewer with livekit-client in Chromium sees no picture of an avatar whose Worker is killed or drained.

Every part is a process of its own; the server is the stand-in, or the one that LIVEKIT_URL names. `make livekit-gaps`
runs it; it prints what it does to standard error, and a JSON object to standard output.

kill: from the kill -9 of the Worker to the first picture of the next generation. drain: the longest time between two
pictures while the Worker is drained.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from dhsched.client import Client
from dhsched.local.waiting import until
from tests.harness.livekit_browser import Viewer, browsing
from tests.harness.livekit_client import WAIT_S
from tests.harness.livekit_rig import Rig, found_server, rig, speaking_agent

STEADY_S = 2.0  # Pictures come for this long before and after each kill or drain.
WORKERS = 2


class Gaps:
    """One avatar, its viewer, and the gaps that the viewer has seen."""

    def __init__(self, made: Rig, viewer: Viewer, client: Client, live_id: str) -> None:
        self.made, self.viewer, self.client, self.live_id = made, viewer, client, live_id
        self._started = WORKERS
        self._steady: list[float] = []

    async def measure(self, what: str, count: int, act: Callable[[int], Awaitable[float]]) -> dict[str, Any]:
        gaps: list[float] = []
        for n in range(count):
            await self.made.until_workers(WORKERS)
            epoch = (await self.client.get(self.live_id)).epoch
            await self.viewer.first_of(epoch)
            at = time.time() * 1000
            await asyncio.sleep(STEADY_S)
            self._steady.append((await self.viewer.get(f"gap({at})"))[0])
            gaps.append(await act(epoch))
            print(f"{what} {n + 1}: {gaps[-1]:.0f} ms without a picture", file=sys.stderr, flush=True)
        # What the longest time between two pictures is when nothing happens tells how busy the machine is.
        return {
            f"{what}s": count,
            f"{what}_gap_ms_p50": round(median(gaps)),
            f"{what}_gap_ms_max": round(max(gaps)),
            f"before_{what}_gap_ms_max": round(max(self._steady)),
        }

    async def kill(self, epoch: int) -> float:
        owner = await self.made.owner(self.live_id)
        at = time.time() * 1000
        owner.kill()
        gap = await self.viewer.first_of(epoch + 1) - at
        self._started += 1
        del self.made.workers[owner.name]
        await self.made.avatars(f"gpu-{self._started}")
        return gap

    async def drain(self, epoch: int) -> float:
        worker = (await self.client.get(self.live_id)).worker
        assert worker is not None
        at = time.time() * 1000
        await self.client.drain(worker)
        await self.viewer.first_of(epoch + 1)
        await asyncio.sleep(STEADY_S)
        gap, before, after = await self.viewer.get(f"gap({at})")
        print(f"the longest gap was between epochs {before} and {after}", file=sys.stderr)

        async def moved() -> bool:
            return (await self.client.get(self.live_id)).worker != worker

        await until(moved, "the drained Worker to be empty", WAIT_S)
        await self.client.undrain(worker)
        return float(gap)


async def measure(what: str, count: int) -> dict[str, Any]:
    """Measure one kind, in a room of its own."""
    async with (
        found_server() as livekit,
        browsing(livekit) as viewer,
        rig(livekit, workers=WORKERS) as made,
        speaking_agent(made) as (_, avatar),
        made.client() as client,
    ):
        gaps = Gaps(made, viewer, client, avatar.live_id)
        return await gaps.measure(what, count, gaps.kill if what == "kill" else gaps.drain)


async def measure_all(kills: int, drains: int) -> dict[str, Any]:
    result: dict[str, Any] = {"server": "LIVEKIT_URL" if os.environ.get("LIVEKIT_URL") else "stand-in"}
    for what, count in (("kill", kills), ("drain", drains)):
        if count:
            result |= await measure(what, count)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.livekit.gaps", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--drains", type=int, default=10)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure_all(given.kills, given.drains))))


if __name__ == "__main__":
    main()
