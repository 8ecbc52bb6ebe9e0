"""`<dhsched-live>` in a page of another origin, in a real browser: from the npm package, and from the room itself.

`make typescript` builds the package and the example of the guide that is tested here, and runs this file.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page

from dhsched.local.ports import free_port
from tests.browser.other_origin import page_elsewhere
from tests.browser.watching import Stage
from tests.harness.fleet import until_so
from tests.harness.tree import ROOT

PACKAGE = ROOT / "clients" / "typescript"
EXAMPLE = PACKAGE / "build" / "tests" / "examples" / "embed.js"
POLICY = (
    "default-src 'none'; script-src 'self' {room}; connect-src {room}; media-src blob:; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""A strict policy of a page that embeds a live: no inline styles, no HTML from text."""
NOTES = "[...document.querySelectorAll('#log li')].map((each) => each.textContent)"
FRAMES = "document.querySelector('dhsched-live').video.getVideoPlaybackQuality().totalVideoFrames"
RENEW = "(async () => { document.querySelector('dhsched-live').src = await (await fetch('/link')).text(); })()"
CONNECTS = "document.querySelector('dhsched-live').connects"


async def until(page: Page, expression: str, is_so: Callable[[Any], bool], what: str) -> Any:
    """Wait until what the page says is so, and return it."""
    return await until_so(partial(page.evaluate, expression), is_so, what)


async def until_note(page: Page, begin: str) -> list[str]:
    found: list[str] = await until(page, NOTES, lambda notes: any(each.startswith(begin) for each in notes), begin)
    return found


async def until_pictures(page: Page) -> None:
    """Wait until more pictures come than there are now."""
    before = await page.evaluate(FRAMES)
    await until(page, FRAMES, lambda frames: frames > before + 10, "pictures")


async def allow(theatre: Stage, origin: str) -> None:
    """Start the room again, so that pages of this origin may use it."""
    theatre.room.kill()
    await theatre.room.ended()
    await theatre.start_room("--allowed-origins", origin)


@asynccontextmanager
async def example(theatre: Stage, port: int) -> AsyncIterator[None]:
    """The server of the guide's example."""
    node = shutil.which("node")
    assert node, "the package is built, and node is gone"
    given = {"DHSCHED_URL": ",".join(theatre.fleet.dispatch), "ROOM_URL": theatre.room.url, "PORT": str(port)}
    process = await asyncio.create_subprocess_exec(
        *(node, str(EXAMPLE)),
        env={**os.environ, **given, "PAGE": str(PACKAGE / "examples" / "embed.html")},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert b"http://localhost" in await process.stdout.readline()
        yield
    finally:
        process.kill()
        await process.wait()


async def test_the_component_of_the_package_shows_a_live_through_freezes_and_restarts(
    browser: Browser, theatre: Stage
) -> None:
    if not EXAMPLE.exists():
        pytest.skip("NOT BUILT: the component of the npm package is not tested; run make typescript")
    port = free_port()
    origin = f"http://localhost:{port}"
    await allow(theatre, origin)
    async with example(theatre, port):
        page = await browser.new_page()
        await page.goto(origin)
        await until_pictures(page)
        await page.fill("input", "Good evening.")
        await page.press("input", "Enter")
        await until_note(page, "said as item 1")
        await page.click("#stop")
        await until_note(page, "interrupted by item 2")

        # The Worker is frozen: the badge says so, and the next generation is told once.
        theatre.owner(await theatre.live()).freeze()
        await until(page, NOTES, lambda notes: "air off" in notes, "a badge without a picture")
        await theatre.until_epoch(2)
        told = [each for each in await until_note(page, "epoch 2 on ") if each.startswith("epoch 2 ")]
        assert len(told) == 1 and told[0].endswith("took over from 1")
        await until_pictures(page)
        assert await page.evaluate(CONNECTS) == 1, "the connection is the room's, and stays"

        # Another token renews the connection; a room that dies is connected to again.
        async with page.expect_response(lambda answer: answer.url.endswith("/token")) as renewed:
            await page.evaluate(RENEW)
        assert (await renewed.value).status == 204
        await allow(theatre, origin)
        await until(page, CONNECTS, lambda connects: connects >= 2, "a second connection")
        await until_pictures(page)

        assert (await theatre.fleet.post(f"{theatre.fleet.dispatch[0]}/v1/lives/demo/end"))[0] == 200
        await until_note(page, "ended Live demo has ended")
        await page.evaluate("document.querySelector('dhsched-live').remove()")


async def test_a_page_under_a_strict_policy_takes_the_component_from_the_room(browser: Browser, theatre: Stage) -> None:
    room = theatre.room.url
    script = f'<script type="module" src="{room}/page/dhsched-live.js"></script>'
    body = f'<!doctype html>{script}<dhsched-live src="{await theatre.link()}"></dhsched-live>'
    async with page_elsewhere(body, {"Content-Security-Policy": POLICY.format(room=room)}) as origin:
        page = await browser.new_page()
        refused: list[str] = []
        page.on("console", lambda said: refused.append(said.text) if "Content Security Policy" in said.text else None)
        await page.goto(origin)
        assert await page.evaluate("customElements.get('dhsched-live') === undefined"), "the origin is not allowed"
        await allow(theatre, origin)
        await page.goto(origin)
        await until_pictures(page)
        assert refused == []
        # A src that names no live is told, and nothing is tried.
        await page.evaluate("document.querySelector('dhsched-live').src = '/nothing'")
        await page.wait_for_selector("#veil:has-text('must look like')")


def test_the_package_has_the_files_of_the_room_s_page() -> None:
    """The component exists once, in the room's page; the build copies it."""
    built = [*(PACKAGE / "dist" / "live").glob("*.js")]
    if not built:
        pytest.skip("NOT BUILT: the npm package is not compared; run make typescript")
    page = ROOT / "src" / "dhsched" / "room" / "page"
    assert [each.name for each in built if each.read_bytes() != Path(page / each.name).read_bytes()] == []
