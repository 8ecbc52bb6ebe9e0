"""A deployment with keys, and a page that shows its console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from PIL import Image
from playwright.async_api import Browser, ConsoleMessage, Page, ViewportSize

from dhsched.worker.session import Session
from tests.browser.watching import LOOKS, WAIT_S
from tests.harness.fleet import Fleet, WorkerTask, fleet

WIDE: ViewportSize = {"width": 1440, "height": 900}
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
"""What must never become HTML, wherever it is shown."""


async def talk(session: Session) -> None:
    """A runtime that acks what it is given, says so, and dies of the words that it is told to die of."""
    async for item in session.inputs():
        if item.text.startswith("die of "):
            raise RuntimeError(item.text)
        session.state = bytes(range(256)) * 20 if item.text == "Save bytes." else {"heard": item.text}
        session.emit("said", {"text": item.text})


class ConsolePage:
    """A page with the console. Errors of the page and refusals by its policy are kept."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.troubles: list[str] = []
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", self._said)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.troubles.append(message.text)

    async def see(self, selector: str, **options: Any) -> None:
        """Wait until this is seen."""
        await self.page.wait_for_selector(selector, timeout=1000 * WAIT_S, **options)

    async def text(self, selector: str) -> str:
        return await self.page.inner_text(selector)

    async def until_text(self, selector: str, wanted: str) -> None:
        """Wait until the text of an element has this in it."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + WAIT_S
        while wanted not in (found := await self.text(selector)):
            assert loop.time() < give_up, f"waited {WAIT_S:g} s for {wanted!r} in {selector}: {found[:500]!r}"
            await asyncio.sleep(0.1)

    async def look_at(self, name: str, *, whole: bool = True) -> None:
        """Take a picture of the page for people, where DHSCHED_LOOKS says so."""
        if LOOKS:
            path = Path(LOOKS) / f"{name}.png"
            await self.page.evaluate("document.getElementById('toasts').replaceChildren()")
            await self.page.screenshot(path=path, full_page=whole)
            shrink(path)


def shrink(path: Path) -> None:
    """Make a picture small enough for the pages of docs/: no wider than 1,200 pixels, 256 colours, the most frequent
    ones exactly."""
    with Image.open(path) as picture:
        picture.load()
        wide = min(1_200, picture.width)
        small = picture.convert("RGB").resize((wide, picture.height * wide // picture.width), Image.Resampling.LANCZOS)
    counted = sorted(small.getcolors(small.width * small.height) or [], reverse=True)[:48]
    rare = small.quantize(208, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).getpalette() or []
    palette = Image.new("P", (1, 1))
    frequent = [part for _, colour in counted for part in cast(tuple[int, int, int], colour)]
    palette.putpalette([*frequent, *rare[: 3 * 208]])
    small.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


class Deployment:
    """The deployment: a replica with keys, an Infer-Controller, Workers that talk."""

    def __init__(self, browser: Browser, made: Fleet) -> None:
        self.fleet = made
        self.url = made.dispatch[0]
        self.workers: dict[str, WorkerTask] = {}
        self._browser = browser

    async def start_worker(self, name: str, capacity: int = 4) -> None:
        key = await self.fleet.key("worker")
        self.workers[name] = await self.fleet.start_worker(talk, name, capacity, key=key)

    async def open(self, role: str = "admin", path: str = "/fleet", **options: Any) -> ConsolePage:
        """The console, opened by a link that logs in."""
        page = ConsolePage(await self._browser.new_page(**{"viewport": WIDE, **options}))
        token = await self.fleet.mint(await self.fleet.key(role))
        await page.page.goto(f"{self.url}/console#token={token}")
        await page.see("#feed[data-tone=good]")
        assert "token" not in page.page.url, "the address does not pass on the token"
        await self.go(page, path)
        return page

    async def go(self, page: ConsolePage, path: str) -> None:
        await page.page.evaluate("path => { location.hash = path }", f"#{path}")

    async def push(self, live: str, text: str) -> None:
        status, said = await self.fleet.push(live, text, boundary=True)
        assert status == 200, said


@asynccontextmanager
async def deployment(browser: Browser, folder: Path) -> AsyncIterator[Deployment]:
    quick = {"access": "keys", "reconcile_s": 0.5, "worker_ttl_s": 3.0}
    async with fleet(folder, with_loops=True, replica=quick, access="keys") as made:
        yield Deployment(browser, made)
