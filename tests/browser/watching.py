"""A deployment with a room, and a page that watches it."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from playwright.async_api import Browser, Page, ViewportSize

from dhsched.client.models.viewers import ViewerToken
from dhsched.local.ports import free_port
from dhsched.local.process import Process as RoomProcess
from tests.harness.fleet import Fleet, fleet
from tests.harness.processes import FleetProcesses, Process, processes

TESTCARD = "tests.browser.testcard:show"
WAIT_S = 30.0
LOUD, QUIET = 0.01, 0.001
PHONE: ViewportSize = {"width": 390, "height": 844}
LOOKS = os.environ.get("DHSCHED_LOOKS", "")  # A folder for pictures of the page, for people.
LOOK = """async () => {
  const pc = viewer.pc(), found = {
    frames: viewer.frames.length, connects: viewer.connects(), state: viewer.state,
    restarts: viewer.states.map((each) => each[1]).filter((each) => each === "connecting").length,
    ufrag: pc && pc.currentRemoteDescription ? /ice-ufrag:(\\S+)/.exec(pc.currentRemoteDescription.sdp)[1] : "",
  };
  const video = viewer.video;
  if (video.videoWidth) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    const context = canvas.getContext("2d");
    context.drawImage(video, 4, 4, 8, 8, 0, 0, 1, 1);
    found.pixel = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  }
  if (pc) (await pc.getStats()).forEach((each) => {
    if (each.type === "inbound-rtp") found[each.kind] = each;
  });
  return found;
}"""


def epochs(found: dict[str, Any]) -> list[int]:
    """The generations that the timeline shows."""
    return [shown["epoch"] for shown in (found["state"] or {}).get("timeline", [])]


MOUTH = """async (samples) => {
  const video = viewer.video;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 160;
  const drawing = canvas.getContext("2d", { willReadFrequently: true });
  const found = [];
  for (let n = 0; n < samples; n++) {
    await new Promise((done) => video.requestVideoFrameCallback(done));
    drawing.drawImage(video, 0, 0, 160, 160);
    const pixels = drawing.getImageData(70, 94, 24, 18).data;
    let dark = 0;
    for (let i = 0; i < pixels.length; i += 4) dark += Math.max(0, 150 - pixels[i]);
    found.push(dark);
  }
  return found;
}"""
"""For each of so many pictures: how much of the mouth's place is dark inside."""


class Watching:
    """A page that shows a live."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def look(self) -> dict[str, Any]:
        # A page that a click led to may be loading. Its policy forbids waiting for a function, which is evaluated.
        await self.page.wait_for_selector("#title:not(:text-is('Live'))", state="attached")
        found: dict[str, Any] = await self.page.evaluate(LOOK)
        return found

    async def until(self, condition: Callable[[dict[str, Any]], object], what: str, wait_s: float = WAIT_S) -> Any:
        """Look until it is so; what was seen then."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait_s
        while True:
            found = await self.look()
            if condition(found):
                return found
            if loop.time() > give_up:
                raise AssertionError(f"waited {wait_s:g} s for {what}; last seen: {found}")
            await asyncio.sleep(0.1)

    async def until_playing(self, epoch: int = 0) -> Any:
        """Pictures come, and of this epoch."""
        begin = (await self.look()).get("frames", 0)

        def playing(found: dict[str, Any]) -> bool:
            enough = found["frames"] > begin + 10
            return enough and (not epoch or (found["state"] or {}).get("on_air") == epoch)

        return await self.until(playing, f"pictures of epoch {epoch or 'any'}")

    async def energy(self, seconds: float) -> float:
        """Mean level of the sound over this time, by what the browser has decoded."""
        before = (await self.look())["audio"]
        await asyncio.sleep(seconds)
        after = (await self.look())["audio"]
        lasted = after["totalSamplesDuration"] - before["totalSamplesDuration"]
        power: float = (after["totalAudioEnergy"] - before["totalAudioEnergy"]) / max(lasted, 0.001)
        return math.sqrt(max(power, 0.0))

    async def mouth(self, pictures: int) -> list[int]:
        """How far the mouth is open, picture by picture."""
        found: list[int] = await self.page.evaluate(MOUTH, pictures)
        return found

    async def until_sound(self) -> None:
        for _ in range(30):
            if await self.energy(0.3) > LOUD:
                return
        raise AssertionError("no sound came")

    async def until_quiet(self, wait_s: float = WAIT_S) -> float:
        """Wait until it says nothing any more; how long that took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while await self.energy(0.5) > QUIET:
            assert loop.time() - began < wait_s, f"it still speaks after {wait_s:g} s"
        return loop.time() - began


async def look_at(page: Watching, name: str, *, whole: bool = True) -> None:
    """Take a picture of the page for people, where LOOKS says so."""
    if LOOKS:
        await page.page.screenshot(path=Path(LOOKS) / f"{name}.png", full_page=whole)


class Stage:
    """The deployment."""

    def __init__(self, browser: Browser | None, made: Fleet, running: FleetProcesses, port: int) -> None:
        self.fleet = made
        self.processes = running
        self.workers: dict[str, Process] = {}
        self.room: RoomProcess
        self._browser = browser
        self._port = port
        self._metrics_port = free_port()

    async def start_room(self, *options: str) -> None:
        patient = {"DHSCHED_ROOM_STUN_S": "60", "DHSCHED_ROOM_CONNECT_S": "60"}
        if "--host" not in options:  # Only a room on loopback tells pids.
            patient["DHSCHED_ROOM_PIDS"] = str(self.processes.pids)
        ports = {"port": self._port, "metrics_port": self._metrics_port}
        self.room = await self.processes.room("room", "--access", "keys", *options, **ports, environment=patient)
        await self.room.until_ready()

    async def start_worker(self, name: str, runtime: str = TESTCARD) -> None:
        self.workers[name] = await self.processes.worker(name, "--runtime", runtime)

    def owner(self, placed: dict[str, Any]) -> Process:
        return self.workers[placed["worker"].partition("#")[0]]

    async def live(self) -> Any:
        return await self.fleet.get("/v1/lives/demo")

    async def until_epoch(self, epoch: int) -> Any:
        """The live is claimed in this epoch, or a later one."""
        for _ in range(int(WAIT_S / 0.1)):
            found = await self.live()
            if found["epoch"] >= epoch and found["claimed"]:
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"no epoch {epoch} after {WAIT_S:g} s: {found}")

    async def link(self, live: str = "demo", **body: Any) -> str:
        """A link to the live's page, by default with every grant."""
        body = {"grants": ["watch", "say", "interrupt"], **body}
        _, minted = await self.fleet.post(f"{self.fleet.dispatch[0]}/v1/lives/{live}/viewer-tokens", body)
        return msgspec.convert(minted, ViewerToken).link(self.room.url)

    async def watch(self, live: str = "demo", **options: Any) -> Watching:
        assert self._browser is not None, "this stage is without a browser"
        page = await self._browser.new_page(**options)
        await page.goto(await self.link(live))
        return Watching(page)

    async def metrics(self) -> dict[str, float]:
        async with self.fleet.http.get(f"http://127.0.0.1:{self._metrics_port}/metrics") as response:
            lines = (await response.text()).splitlines()
        return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("dhsched_room")}


@asynccontextmanager
async def stage(
    browser: Browser | None, folder: Path, runtime: str = TESTCARD, room: Sequence[str] = ()
) -> AsyncIterator[Stage]:
    """The deployment, with a live, `demo`. `room` are options of the room."""
    port = free_port()
    async with fleet(folder, room=f"http://127.0.0.1:{port}", with_loops=True) as made, processes(made) as running:
        prepared = Stage(browser, made, running, port)
        await prepared.start_room(*room)
        for name in ("a", "b"):
            await prepared.start_worker(name, runtime)
        await running.workers_ready(2)
        await made.create("demo")
        yield prepared
