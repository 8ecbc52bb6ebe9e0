"""LiveKit's own client for browsers, in a real Chromium: what a viewer of a room sees (tests/livekit/viewer)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from playwright.async_api import Page, async_playwright

from dhsched.bench.avatar_room import FLAGS, chromium
from dhsched.errors import DhschedError
from dhsched.local.waiting import until
from tests.harness.livekit_client import WAIT_S, Server
from tests.harness.tree import ROOT

FOLDER = ROOT / "tests/livekit/viewer"
CLIENT = ROOT / ".venvs/viewer/node_modules/livekit-client/dist/livekit-client.umd.js"


def missing() -> str:
    """Return what is missing to watch a room in a browser; empty if nothing is."""
    if chromium() is None:
        return "NO BROWSER: install chromium or set DHSCHED_CHROMIUM"
    return "" if CLIENT.exists() else "NO LIVEKIT-CLIENT: `make livekit` installs it; it needs node 20 with npm"


class Viewer:
    """A page in the room. Times are in ms since 1970, as Python's time.time() * 1000 on the same machine."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    async def get(self, expression: str) -> Any:
        return await self.page.evaluate(f"viewer.{expression}")

    async def sees(self, identity: str, more: int = 3) -> None:
        """Wait until `more` further pictures of this identity have been shown."""
        begin = (await self.get("pictures")).get(identity, 0)

        async def enough() -> bool:
            return bool((await self.get("pictures")).get(identity, 0) >= begin + more)

        await until(enough, f"{more} pictures of {identity} in the browser", WAIT_S)

    async def hears(self, identity: str) -> None:
        async def loud() -> bool:
            return bool((await self.get("loudest")).get(identity, 0) > 0.05)

        await until(loud, f"the voice of {identity} in the browser", WAIT_S)

    async def first_of(self, epoch: int) -> float:
        """Wait for the first picture of a generation; return when it was shown."""

        async def shown() -> float:
            return float(await self.get(f"firstOf({epoch})"))

        await until(shown, f"a picture of epoch {epoch} in the browser", WAIT_S)
        return await shown()


async def library(_: web.Request) -> web.FileResponse:
    return web.FileResponse(CLIENT)


@asynccontextmanager
async def browsing(livekit: Server, identity: str = "browser") -> AsyncIterator[Viewer]:
    """Open the room in Chromium."""
    if text := missing():
        raise DhschedError(text)
    app = web.Application()
    app.router.add_get("/livekit-client.umd.js", library)
    app.router.add_static("/", FOLDER)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS])
            try:
                page = await browser.new_page()
                viewer = Viewer(page)
                await page.goto(f"http://127.0.0.1:{runner.addresses[0][1]}/viewer.html")
                await page.evaluate("([url, token]) => viewer.join(url, token)", [livekit.url, livekit.token(identity)])
                yield viewer
                assert not viewer.errors, viewer.errors
            finally:
                await browser.close()
    finally:
        await runner.cleanup()
