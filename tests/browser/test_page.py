"""What the page itself says: who is on air, what the live was told, its end; on a telephone, and in another page."""

from __future__ import annotations

import asyncio

from tests.browser.watching import PHONE, Stage, look_at


async def test_a_frozen_picture_is_not_called_on_air(theatre: Stage) -> None:
    page = await theatre.watch(viewport={"width": 1280, "height": 900})
    await page.until_playing(1)
    await page.page.wait_for_selector('#badge[data-air="on"]')
    await page.page.fill("#text", "Good evening.")
    await page.page.press("#text", "Enter")
    await page.page.wait_for_selector("#transcript li")
    assert "you: Good evening." in await page.page.inner_text("#transcript")
    await look_at(page, "on-air-1280")
    frozen = theatre.owner(await theatre.live())
    assert await page.page.inner_text("#kill") == f"kill -9 {frozen.pid}", "the Worker on air, and nobody else"
    frozen.freeze()
    await page.page.wait_for_selector('#badge[data-air="off"]')
    assert "no picture for" in await page.page.inner_text("#badge")
    await look_at(page, "frozen-1280")
    await theatre.until_epoch(2)
    await page.until_playing(2)
    await page.page.wait_for_selector('#badge[data-air="on"]')
    await page.page.wait_for_selector('#generations tr[data-epoch="2"]')
    colours = await page.page.evaluate(
        "[...document.querySelectorAll('#bar .stretch:not(.gap)')].map((at) => getComputedStyle(at).backgroundColor)"
    )
    assert len(colours) == len({*colours}) == 2, "a colour for each generation"
    successor = theatre.owner(await theatre.live())
    await page.page.wait_for_selector(f"#kill:text-is('kill -9 {successor.pid}')")
    assert successor.pid != frozen.pid
    await look_at(page, "two-generations-1280")
    await page.page.set_viewport_size(PHONE)
    wide = await page.page.evaluate("document.documentElement.scrollWidth")
    table = await page.page.evaluate(
        "(() => { const each = document.querySelector('.scroll'); return each.scrollWidth - each.clientWidth; })()"
    )
    await look_at(page, "two-generations-390")
    assert wide <= PHONE["width"] and table <= 0, "nothing is beside the screen"


async def test_an_ended_live_says_so_and_offers_nothing(theatre: Stage) -> None:
    page = await theatre.watch(viewport=PHONE)
    await page.until_playing(1)
    assert (await theatre.fleet.post(f"{theatre.fleet.dispatch[0]}/v1/lives/demo/end"))[0] == 200
    await page.page.wait_for_selector('#connection[data-state="ended"]')
    assert "has ended" in await page.page.inner_text("#veil")
    for part in ("#say", "#sound", "#badge", "#caption"):
        assert not await page.page.is_visible(part), part
    assert await page.page.get_attribute("#veil", "hidden") is None
    await asyncio.sleep(1.5)  # The page goes on asking for the state, and offers nothing all the same.
    assert not await page.page.is_visible("#say") and await page.page.is_disabled("#send")
    assert await page.page.get_attribute("#veil", "hidden") is None, "a last picture does not hide the end"
    await look_at(page, "ended-390")


async def test_the_root_lists_the_lives_whose_link_was_opened_and_no_other(theatre: Stage) -> None:
    await theatre.fleet.create("other")
    page = await theatre.watch(viewport=PHONE)
    await page.until_playing(1)
    await page.page.click("header a")
    await page.page.wait_for_selector("#lives a")
    assert await page.page.inner_text("#lives") == "demo"
    await look_at(page, "lives-390")
    await page.page.click("#lives a")
    await page.until_playing(1)
    stranger = await page.page.context.browser.new_page()  # type: ignore[union-attr]
    await stranger.goto(f"{theatre.room.url}/")
    await stranger.wait_for_selector("text=Nothing to watch here")


async def test_an_embedded_page_shows_the_picture_alone(theatre: Stage) -> None:
    page = await theatre.watch(viewport={"width": 640, "height": 480})
    link = (await theatre.link(grants=["watch"])).replace("#", "?embed#")
    await page.page.goto("about:blank")
    await page.page.goto(link)
    await page.until_playing(1)
    for part in ("header", ".side", ".wide", "footer"):
        assert not await page.page.is_visible(part), part
    assert await page.page.is_visible("#video") and await page.page.is_visible("#badge")
    await look_at(page, "embedded-640")
