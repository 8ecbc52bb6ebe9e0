"""The console's map of many Workers by keyboard; what a runtime has saved, and the picture, on its page of a live."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser

from dhsched.local.ports import free_port
from tests.browser.console import WIDE, ConsolePage, deployment
from tests.browser.watching import Stage
from tests.harness.fleet import fleet, until_so
from tests.harness.processes import processes
from tests.harness.replicas import register

LIVE = "/live/default/demo"


async def test_many_workers_are_a_map_that_the_keyboard_moves_over(browser: Browser, tmp_path: Path) -> None:
    async with deployment(browser, tmp_path) as at:
        workers = await register(at.fleet.replicas[0].store, 200, capacity=2, pool="gpu", name="gpu-")
        page = await at.open("reader")
        await page.until_text(".head .note", "200 Workers")
        await page.page.focus("canvas.heat")
        for key, shown in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
            await page.page.keyboard.press(key)
            await page.until_text(".chosen", f"Open {workers[shown]}")
        await page.until_text(".map .tip", f"{workers[1]} in gpu")
        await page.until_text(".card.side .head", f"of {workers[1]}")
        await page.page.keyboard.press("Escape")
        await page.see(".chosen:empty", state="attached")
        await page.page.keyboard.press("ArrowDown")
        await page.page.keyboard.press("Enter")
        await page.see(f"h1:text-is('{workers[0]}')")
        await page.page.keyboard.press("?")
        await page.see("#dialog[open]")
        assert "Arrows" in await page.text("#dialog")
        await page.page.keyboard.press("Escape")
        await page.see("#dialog:not([open])", state="attached")  # Until it is closed it takes the keys.
        await page.page.keyboard.press("r")
        await page.until_text("main", "Every live has its Worker.")
        assert page.troubles == []


async def test_the_saved_state_is_shown_as_json_or_digits(browser: Browser, tmp_path: Path) -> None:
    async with deployment(browser, tmp_path) as at:
        await at.start_worker("a")
        await at.fleet.create("demo")
        page = await at.open(path=LIVE)
        await page.until_text("main", "Nothing was saved.")
        assert not await page.page.is_visible("#watch"), "there is no room"
        for text, shown in (("<b>Hello.</b>", '"heard": "<b>Hello.</b>"'), ("Save bytes.", "00 01 02 03")):
            await at.push("demo", text)
            await page.until_text(".emits", text)
            await page.page.reload()
            await page.see("pre.saved")
            await page.until_text("pre.saved", shown)
        await page.until_text("main", "5.0 KiB, saved with the ack of item 2; this is its beginning")
        assert len(await page.text("pre.saved")) <= 4096 and page.troubles == []


async def test_the_picture_where_there_is_a_room(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    room = f"http://127.0.0.1:{port}"
    async with fleet(tmp_path, room=room, replica={"room": room}, with_loops=True) as made, processes(made) as running:
        stage = Stage(browser, made, running, port)
        await stage.start_room("--frame-ancestors", made.dispatch[0])
        await stage.start_worker("a")
        await running.workers_ready(1)
        await made.create("demo")
        page = ConsolePage(await browser.new_page(viewport=WIDE))
        await page.page.goto(f"{made.dispatch[0]}/console#{LIVE}")
        await page.see("#watch")
        assert await page.page.get_attribute(".picture a", "href") == f"{room}/live/demo"
        await page.page.click("#watch")
        picture = page.page.frame_locator(".picture iframe")
        await picture.locator('#connection[data-state="connected"]').wait_for(state="attached", timeout=60_000)
        await picture.locator("#picture, video").first.wait_for()
        [frame] = [each for each in page.page.frames if each.url.startswith(room)]

        async def width() -> int:
            # Not wait_for_function: that evaluates in the page again and again, which the page's policy forbids.
            return int(await frame.evaluate("document.querySelector('dhsched-live').video.videoWidth"))

        await until_so(width, lambda found: found > 0, "a picture in the console")
        assert "token" not in frame.url, "the frame's address does not pass on the token"
        await page.look_at("console-picture")
        await page.page.click(".picture button")
        await page.see("#watch")
        assert [each for each in page.page.frames if each.url.startswith(room)] == []
        assert page.troubles == []
