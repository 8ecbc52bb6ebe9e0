"""The web console over a real deployment with keys: what an operator sees, and what each button says and does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Browser

from tests.browser.console import HOSTILE, ConsolePage, Deployment, deployment
from tests.browser.watching import PHONE
from tests.harness.fleet import until_so


@pytest.fixture
async def at(browser: Browser, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with deployment(browser, tmp_path) as made:
        yield made


async def answer(page: ConsolePage, button: str, *says: str, fill: str = "") -> None:
    """Press a button, read what its dialog says, and agree."""
    await page.page.click(button)
    await page.see("#dialog[open]")
    asked = await page.text("#dialog")
    assert all(each in asked for each in says), asked
    if fill:
        await page.page.fill("#dialog input", fill)
    await page.page.click("#dialog button[value=yes]")


async def test_login_with_a_key_and_what_a_reader_may_not_do(at: Deployment, browser: Browser) -> None:
    await at.start_worker("a")
    await at.fleet.create("demo")
    page = ConsolePage(await browser.new_page())
    await page.page.goto(f"{at.url}/console")
    await page.see("#key")
    await page.look_at("console-login", whole=False)
    await page.page.fill("#key", "dhk_000000000000_nope")
    await page.page.press("#key", "Enter")
    await page.until_text("#login-note", "This key is not valid here.")
    await page.page.fill("#key", await at.fleet.key("reader"))
    await page.page.press("#key", "Enter")
    await page.see(".tile")
    assert await page.text("#who") == "reader"
    assert "dhk_" not in await page.page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})"), (
        "no key is kept"
    )
    await page.page.reload()
    await page.see(".tile")
    await page.page.click(".tile")
    await page.page.click(".chosen a")
    await page.see(".slotlist tbody tr")
    assert not await page.page.query_selector("#drain, #cordon"), "a reader changes nothing"
    await page.page.click(".slotlist a")
    await page.see(".generations tbody tr")
    assert not await page.page.query_selector("#end, #reassign, #interrupt")
    app = await at.open("app")
    await app.until_text("main", "may not see the fleet")
    await at.go(app, "/live/default/demo")
    await app.see("#end")
    assert not await app.page.is_visible("#truth") and app.troubles == []
    await page.page.click("#leave")
    await page.see("#key")
    assert await page.page.evaluate("sessionStorage.length") == 0 and not await page.page.is_visible("#truth")
    assert page.troubles == []


async def test_the_fleet_moves_by_itself_and_events_follow_the_selection(at: Deployment) -> None:
    for name in ("gpu-a", "gpu-b", "gpu-c", "gpu-d", "gpu-e", "gpu-f"):
        await at.start_worker(name, 6)

    async def statuses() -> Any:
        return (await at.fleet.get("/v1/summary"))["workers_by_status"]

    await until_so(statuses, lambda found: found == {"ready": 6}, "every Worker can be placed on")
    for n in range(14):
        await at.fleet.create(f"show-{n}")
    page = await at.open()
    await page.see(".tile >> nth=5")
    await page.until_text('#truth [data-name="open"]', "14")
    await page.until_text('#truth [data-name="safety"]', "0 0 0")
    await page.until_text('#truth [data-name="safety"]', "checked")
    await page.until_text('#truth [data-name="free"]', "22 of 36")
    await page.until_text(".pools", "14 of 36 taken, 22 free")
    for role in ("Dispatch", "Infer-Controller"):
        await page.until_text(".serving", role)
    await at.fleet.create("show-14")
    await page.until_text('#truth [data-name="open"]', "15")
    await page.see(".tile i[data-state=running] >> nth=14")
    await page.look_at("console-fleet")
    [moved, *_] = [
        each["live_id"] for each in (await at.fleet.get("/v1/lives"))["lives"] if each["worker"].startswith("gpu-b#")
    ]
    await at.push(moved, "Good evening.")
    await at.workers["gpu-b"].kill()
    await at.push(moved, "Where were we?")
    await page.until_text(".tiles", "lost")
    await page.until_text(".events", "worker lost")
    await page.until_text(".pools", "lost")
    await page.look_at("console-fleet-lost")
    await page.page.click(".tile:has-text('gpu-a')")
    await page.see(".tile[data-selected]")
    await page.until_text(".card.side .head", "of gpu-a#")
    kinds = await page.page.eval_on_selector_all(".events li", "rows => rows.map((row) => row.textContent)")
    assert kinds and all("gpu-a" in each for each in kinds), kinds
    await page.page.click(".tile[data-selected]")
    await page.see(".slotlist")
    await page.page.keyboard.press("f")
    await page.see(".tile")
    await page.page.keyboard.press("/")
    await page.page.keyboard.type(moved)
    await page.page.keyboard.press("Enter")
    await page.see(f"h1:text-is('{moved}')")
    await page.until_text(".cursors", "2 acked")
    await page.until_text(".generations", "first ack")
    for phase in ("detect", "place", "claim", "first ack"):
        await page.see(f'.generations .stack i[data-phase="{phase}"]')
    await page.see(".timeline .gap", state="attached")
    await page.until_text(".happened", "committed")
    assert "earlier" not in await page.text(".happened"), "the times of commits and claims are the store's"
    await at.push(moved, "die of a CUDA error")
    await page.until_text(".letters", "die of a CUDA error")
    await page.until_text(".head", "open")
    await page.until_text(".generations", "RuntimeError")
    await answer(page, "#interrupt", "pending items will be dropped")
    await page.see(".timeline .interrupt", state="attached")
    await at.push(moved, "Here we are.")
    await page.until_text(".emits", "Here we are.")
    await page.look_at("console-live")
    assert page.troubles == []


async def test_a_drain_says_what_it_needs_shows_why_lives_stay_and_can_be_cancelled(at: Deployment) -> None:
    await at.start_worker("old", 4)
    for n in range(3):
        await at.fleet.create(f"call-{n}")
    await at.start_worker("spare", 2)
    await at.fleet.replicas[0].fleet.refresh()
    [worker] = [each for each in (await at.fleet.get("/v1/workers"))["workers"] if each["worker"].startswith("old#")]
    name = worker["worker"]
    page = await at.open("operator", f"/worker/{name.replace('#', '%23')}")
    await page.until_text("#preview", "free slots elsewhere: 2, needed: 3")
    await page.until_text(".slotlist", "none")
    await at.push("call-2", "Hello.")
    await page.until_text(".slotlist", "item 1, ")
    assert re.search(r"item 1, \d.* ago", await page.text(".slotlist")), "the page has seen the ack"
    await until_so(lambda: page.text(".facts"), lambda found: "not known" not in found, "the lag of the loop")
    await answer(page, "#cordon", "gets no new lives", "3 lives", "1 free slot")
    await page.see("#uncordon")
    await page.page.click("#uncordon")
    await page.see("#cordon")
    await answer(page, "#drain", "3 lives will move", "elsewhere: 2, needed: 3", "1 live will find no slot")
    await page.see("#undrain")
    await page.until_text("main", "2 of 3 lives moved")
    await page.until_text("main", "1 blocked")
    await page.look_at("console-drain")
    await answer(page, "#undrain", "1 live that has not moved stays")
    await page.see("#drain")
    assert (await at.fleet.get(f"/v1/workers/{name.replace('#', '%23')}"))["mode"] == "ready"
    assert page.troubles == []


async def test_a_live_after_crashes_shows_its_generations_and_nothing_hostile_becomes_html(at: Deployment) -> None:
    await at.start_worker("a")
    await at.start_worker("b")
    body = {"live_id": "hero", "digital_id": "demo", "labels": ["kind=show"], "metadata": {"title": HOSTILE}}
    status, _ = await at.fleet.post(f"{at.url}/v1/lives?wait_s=30", {**body, "config": {"voice": HOSTILE}})
    assert status == 201
    await at.push("hero", f"hello {HOSTILE}")
    await at.push("hero", f"die of {HOSTILE}")

    async def letters() -> Any:
        return (await at.fleet.get("/v1/lives/hero/dead-letters"))["items"]

    await until_so(letters, len, "the item that kills is given up")
    await at.push("hero", "and on")

    async def live() -> Any:
        return await at.fleet.get("/v1/lives/hero")

    await until_so(live, lambda found: not found["pending"], "the input after it is acked")
    page = await at.open("admin", "/live/default/hero")
    await page.see(".generations tbody tr >> nth=1")
    await page.until_text(".generations", "RuntimeError")
    await page.until_text(".letters", "die of <img")
    await page.until_text(".values", "<script>")
    await page.until_text(".emits", "<img src=x")
    await page.see(".why .meter")
    await page.until_text(".cursors", "0 pending")
    await page.look_at("console-hostile")
    assert await page.page.query_selector_all("main img, main script") == [], "a text became HTML"
    assert "owned" not in await page.page.title()
    acked = int(re.findall(r"^(\d+) acked", await page.text(".cursors p"))[0])
    await at.push("hero", "one more")
    await page.until_text(".cursors", f"{acked + 1} acked")
    before = await live()
    await answer(page, "#reassign", "1 live leaves", before["worker"])
    await page.until_text(".facts", f"Epoch\n{before['epoch'] + 1}")
    await answer(page, ".letters button.danger", "1 item is deleted", "<img")
    await page.until_text(".letters", "None.")
    await answer(page, "#interrupt", "pending items will be dropped")
    await page.until_text(".happened", "interrupted")
    await answer(page, "#end", "1 live ends, for good")
    await page.see(".pill:text-is('ended')")
    assert await page.page.query_selector("#end") is None
    for at_page in ("/fleet", f"/worker/{before['worker'].replace('#', '%23')}"):
        await at.go(page, at_page)
        await page.until_text("main", "live crashed" if at_page == "/fleet" else "RuntimeError")
        assert await page.page.query_selector_all("main img, main script") == []
    assert page.troubles == []


async def test_recoveries_say_who_waits_and_a_small_screen_has_nothing_beside_it(at: Deployment) -> None:
    await at.start_worker("only", 2)
    for n in range(2):
        await at.fleet.create(f"lone-{n}")
    page = await at.open(path="/recoveries", viewport=PHONE, color_scheme="dark")
    await page.until_text("main", "Every live has its Worker.")
    await at.workers["only"].kill()
    await page.until_text("main", "lost")
    await page.until_text("main", "for gpu")
    await page.until_text('#truth [data-name="waiting"]', "2")
    paths = {
        "recoveries": "/recoveries",
        "fleet": "/fleet",
        "live": "/live/default/lone-0",
        "worker": f"/worker/{quote((await at.fleet.get('/v1/lives/lone-0'))['worker'])}",
    }
    for name, path in paths.items():
        await at.go(page, path)
        await page.see("main .card td")
        await asyncio.sleep(0.5)  # Nothing may come that is too wide.
        wide = await page.page.evaluate("document.documentElement.scrollWidth")
        await page.look_at(f"console-{name}-390")
        assert wide <= PHONE["width"], f"{path} is wider than the screen: {wide}"
        inner = "all => all.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)"
        assert await page.page.eval_on_selector_all(".scroll", inner) == [], f"{path}: a table is cut off"
    assert page.troubles == []
