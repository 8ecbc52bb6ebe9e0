"""The page and its viewer token, in a real browser."""

from __future__ import annotations

from playwright.async_api import Browser

from tests.browser.other_origin import page_elsewhere
from tests.browser.watching import Stage, Watching


async def test_the_page_takes_its_viewer_token_from_the_link(browser: Browser, theatre: Stage) -> None:
    page = await theatre.watch()
    await page.until_playing(1)
    assert "token" not in page.page.url, "an address that is passed on does not pass on the token"
    await page.page.reload()
    await page.until_playing(1)
    assert not await page.page.is_disabled("#send") and not await page.page.is_disabled("#interrupt")

    # Another browser has nothing, and is shown nothing.
    page = Watching(await browser.new_page())
    await page.page.goto(f"{theatre.room.url}/live/demo")
    await page.page.wait_for_selector('#connection[data-state="ended"]')
    assert "viewer token" in await page.page.inner_text("#veil")
    # A link that only watches: what is behind the # changes, and the page goes on without being loaded again.
    await page.page.evaluate("window.same = true")
    await page.page.goto(await theatre.link(grants=["watch"]))
    await page.until_playing(1)
    assert await page.page.evaluate("window.same")
    assert await page.page.is_disabled("#send") and await page.page.is_disabled("#interrupt")

    # A further token renews the connection; it is not made anew.
    before = await page.look()
    async with page.page.expect_response(lambda answer: answer.url.endswith("/token")) as renewed:
        await page.page.goto(await theatre.link(identity="Zoë"))
    assert (await renewed.value).status == 204
    await page.page.wait_for_selector("#send:enabled")
    await page.page.fill("#text", "Hello.")
    await page.page.keyboard.press("Enter")
    await page.page.locator("#said", has_text="Zoë").wait_for()
    after = await page.look()
    assert after["connects"] == before["connects"] and after["ufrag"] == before["ufrag"]


async def test_a_page_of_another_origin_embeds_the_room_only_if_it_may(browser: Browser, theatre: Stage) -> None:
    frame = f'<iframe src="{await theatre.link()}" allow="autoplay"></iframe>'
    async with page_elsewhere(f"<!doctype html><title>app</title>{frame}") as origin:
        page = await browser.new_page()
        await page.goto(origin)
        assert [frame.url for frame in page.frames if "/live/demo" in frame.url] == [], "frame-ancestors refuses it"
        theatre.room.kill()
        await theatre.room.ended()
        await theatre.start_room("--frame-ancestors", origin)
        await page.goto(origin)
        embedded = page.frame_locator("iframe")
        await embedded.locator('#connection[data-state="connected"]').wait_for()
