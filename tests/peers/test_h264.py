"""A room that forwards H.264: a browser and an ingest decode it, and it survives its Worker as VP8 does."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import async_playwright

from dhsched.bench.avatar_room import FLAGS, chromium
from tests.browser.watching import stage
from tests.harness.fleet import until
from tests.harness.ingest import Ingest, running
from tests.harness.theatre import SDP, Watcher, idle, theatre

CODEC = """async () => {
  const reports = new Map([...await viewer.pc().getStats()]);
  const video = [...reports.values()].find((each) => each.type === "inbound-rtp" && each.kind === "video");
  return reports.get(video.codecId).mimeType;
}"""


async def test_h264_reaches_a_browser_and_an_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = chromium()
    if path is None:
        pytest.skip("NO BROWSER: H.264 is not tested; install chromium")
    monkeypatch.setenv("DHSCHED_AVATAR_VIDEO", "h264")
    ingest = Ingest()
    async with async_playwright() as playwright, running(ingest) as url:
        browser = await playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        try:
            options = ("--video", "h264", "--whip", f"{url}/whip/{{live}}")
            async with stage(browser, tmp_path, "avatar", options) as at:
                page = await at.watch()
                await page.until_playing(1)
                assert await page.page.evaluate(CODEC) == "video/H264"
                shown = await ingest.until_connections(1)
                await until(lambda: len(shown.pictures) > 5, "pictures at the ingest")
                at.owner(await at.live()).kill()
                found = await page.until_playing(2)
                assert found["connects"] == 1
                await shown.until_more(5)
                assert len(ingest.offers) == 1
        finally:
            await browser.close()


async def test_a_viewer_without_h264_is_told_so(tmp_path: Path) -> None:
    async with theatre(tmp_path, video="h264") as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        watcher = Watcher()
        offer = (await watcher.offer(("video",))).replace("H264", "H263")
        async with at.fleet.http.post(at.path("whep"), data=offer, headers=SDP) as response:
            assert response.status == 400 and "H264" in (await response.json())["detail"]
        await watcher.close()
