"""Gaps that a viewer of a speaking live sees when its Worker is killed or drained, and the room's CPU time per viewer.

Every part is a process of its own, and the viewer is a real browser (headless Chromium, through playwright) on the
room's page. A gap is the longest time between two pictures that the browser showed, and includes detection.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from dhsched.bench.harness import server_name
from dhsched.client import Client
from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment
from dhsched.local.ports import free_port
from dhsched.local.process import Process
from dhsched.local.waiting import until
from dhsched.store.server.embedded import Embedded

# This process may have used encoders that own threads. A forked child has no such threads: collecting an encoder there
# would wait for them for ever, and this process for the child. So no garbage is collected in a forked child.
os.register_at_fork(before=gc.disable, after_in_parent=gc.enable)

CHROMIUM = "DHSCHED_CHROMIUM"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--autoplay-policy=no-user-gesture-required",
)
POOL, DIGITAL_ID, LIVE = "bench", "bench", "bench"
TEXT = "The machine that speaks to you may stop at any moment, and another one takes its place."
WAIT_S = 60.0  # A step that takes longer ends the benchmark with an error.
STEADY_S = 2.0  # Time that the live speaks before and after each kill or drain.


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: Workers, viewers, and the number of offers, kills and drains."""

    workers: int = 3
    viewers: int = 4
    offers: int = 5
    kills: int = 5
    drains: int = 5
    seconds: float = 10.0
    runtime: str = "avatar"


def chromium() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    return os.environ.get(CHROMIUM) or shutil.which("chromium") or shutil.which("chromium-browser")


async def bench_avatar_room(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    async with running(size) as theatre:
        result = await offers(theatre, size)
        say(f"offers: {result}")
        result |= await viewer_cost(theatre, size)
        say(f"viewers: {result}")
        page = await theatre.watch()
        for what, count, act in (("kill", size.kills, theatre.kill), ("drain", size.drains, theatre.drain)):
            gaps = []
            for n in range(count):
                gaps.append(await theatre.gap(page, act))
                say(f"{what} {n + 1}: {gaps[-1]:.0f} ms without a picture")
            result |= {f"{what}_gap_ms_p50": round(median(gaps)), f"{what}_gap_ms_max": round(max(gaps))}
        if (connects := await page.evaluate("viewer.connects()")) != 1:
            raise DhschedError(f"the viewer connected {connects} times instead of once; this is a bug, report it")
        counts = {"workers": size.workers, "kills": size.kills, "drains": size.drains, "server": theatre.server}
        return result | counts


async def offers(theatre: Theatre, size: Size) -> dict[str, Any]:
    """Measure the time from a viewer's offer to the first picture that is shown."""
    times: list[float] = []
    for _ in range(size.offers):
        page = await theatre.watch()
        times.append(await page.evaluate("viewer.frames[0] - viewer.states[0][0]"))
        await page.close()
    return {"offer_to_first_frame_ms": round(median(times)), "offer_to_first_frame_ms_max": round(max(times))}


async def viewer_cost(theatre: Theatre, size: Size) -> dict[str, Any]:
    """Measure the room's CPU time with and without viewers of a speaking live, and return the difference per viewer."""
    without = await theatre.room_core_percent(size.seconds)
    pages = [await theatre.watch() for _ in range(size.viewers)]
    watched = await theatre.room_core_percent(size.seconds)
    for page in pages:
        await page.close()
    return {
        "room_core_percent_unwatched": round(without, 2),
        "room_core_percent_per_viewer": round((watched - without) / size.viewers, 2),
        "viewers": size.viewers,
    }


class Theatre:
    """The deployment and the browser of the viewers."""

    def __init__(
        self, size: Size, processes: Deployment, room: Process, client: Client, browser: Any, server: str
    ) -> None:
        self.size, self.processes, self.room, self.client, self.browser = size, processes, room, client, browser
        self.server = server
        self._started = 0

    async def start_worker(self) -> None:
        self._started += 1
        await self.processes.worker(f"w{self._started}", runtime=self.size.runtime, pool=POOL)

    async def talk(self) -> None:
        for _ in range(2):
            await self.client.push(LIVE, TEXT, boundary=True)

    async def watch(self) -> Any:
        """Open a page and return it once it shows pictures."""
        page = await self.browser.new_page()
        await page.goto(f"{self.room.url}/live/{LIVE}")
        await until(lambda: page.evaluate("viewer.frames.length > 2"), "a picture", WAIT_S)
        return page

    async def room_core_percent(self, seconds: float) -> float:
        await self.talk()
        before = self.room.cpu_s
        await asyncio.sleep(seconds)
        return (self.room.cpu_s - before) / seconds * 100

    # -- the kill and the drain

    async def gap(self, page: Any, act: Callable[[str], Any]) -> float:
        """Return the longest time between two pictures, in ms, while `act` is done to the live's Worker."""
        await self.processes.until_workers(self.size.workers)
        await self.talk()
        await asyncio.sleep(STEADY_S)
        live = await self.client.get(LIVE)
        began = await page.evaluate("viewer.frames.length - 1")
        await act(live.worker)
        on_air = f"viewer.state.on_air > {live.epoch}"
        await until(lambda: page.evaluate(on_air), "the next generation on air", WAIT_S)
        await asyncio.sleep(STEADY_S)
        longest = f"Math.max(...viewer.frames.slice({began}).map((at, n, all) => n ? at - all[n - 1] : 0))"
        return float(await page.evaluate(longest))

    async def kill(self, worker: str) -> None:
        self.processes.workers[worker.partition("#")[0]].kill()
        await self.start_worker()

    async def drain(self, worker: str) -> None:
        await self.client.drain(worker)

        async def moved() -> bool:
            return (await self.client.get(LIVE)).worker != worker

        await until(moved, "the drained Worker to be empty", WAIT_S)
        await self.client.undrain(worker)


@asynccontextmanager
async def running(size: Size) -> AsyncIterator[Theatre]:
    from playwright.async_api import async_playwright

    if (path := chromium()) is None:
        raise DhschedError(f"no browser was found; install chromium, or set {CHROMIUM} to its path")
    async with (
        Embedded() as server,
        Deployment(server.address.url()) as processes,
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=path, args=[*FLAGS]) as browser,
    ):
        port = free_port()
        await processes.dispatch("dispatch")
        await processes.infer("infer", "--room", f"http://127.0.0.1:{port}")
        room = await processes.room("room", port=port)
        await room.until_ready()
        await processes.configure({DIGITAL_ID: [POOL]})
        async with processes.client() as client:
            made = Theatre(size, processes, room, client, browser, await server_name(server.address))
            for _ in range(size.workers):
                await made.start_worker()
            await processes.until_workers(size.workers)
            await client.create(DIGITAL_ID, live_id=LIVE, wait_s=WAIT_S)
            yield made
