"""Captions on the page of a face that speaks: word by word, cut by an interrupt, through the death of a Worker."""

from __future__ import annotations

from functools import partial
from typing import Any

from dhsched.client import Client
from tests.browser.watching import PHONE, Stage, Watching, epochs, look_at
from tests.harness.fleet import until_so

LONG = (
    "This is a sentence that takes a while to say, so that there is time to do something to the one who says it, and "
    "then there is a little more of it."
)


async def captions(page: Watching) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await page.page.evaluate("viewer.captions")
    return found


async def until_caption(page: Watching, epoch: int, words: int) -> None:
    """Wait until the page has shown so many words of one sentence of this generation."""

    async def shown() -> bool:
        return any(each["epoch"] == epoch and len(each["text"].split()) >= words for each in await captions(page))

    await until_so(shown, bool, f"{words} words of epoch {epoch}")


async def told(faces: Stage) -> dict[str, Any]:
    """What the application is told at the interrupt."""
    async with Client(faces.fleet.dispatch, faces.fleet.infer) as client:
        async for event in client.events("demo"):
            if event.name == "emitted" and "interrupt" in event.data["data"]:
                said: dict[str, Any] = event.data["data"]
                return said
    raise AssertionError("the stream of events has ended")


async def test_captions_end_where_an_interrupt_was_heard(faces: Stage) -> None:
    page = await faces.watch(viewport={"width": 1280, "height": 900})
    await page.until_playing(1)
    await faces.fleet.push("demo", LONG, boundary=True)
    await until_caption(page, 1, 8)
    assert LONG.startswith(await page.page.inner_text("#caption"))
    await look_at(page, "caption-1280")
    await page.page.set_viewport_size(PHONE)
    await look_at(page, "caption-390")
    await page.page.keyboard.press("Escape")
    await until_so(partial(captions, page), lambda seen: seen[-1]["cut"], "a caption that was cut")
    heard = LONG[: (await told(faces))["chars"]]
    seen = await captions(page)
    assert seen[-1] == {"epoch": 1, "seq": 1, "text": heard, "cut": True} and 0 < len(heard) < len(LONG)
    assert await page.page.inner_text("#caption") == f"{heard}\N{EM DASH}"
    assert "you: (interrupted)" in await page.page.inner_text("#transcript")
    await look_at(page, "caption-cut-390")
    await page.page.wait_for_selector("#caption", state="hidden")
    assert await captions(page) == seen, "nothing more of it comes"


async def test_captions_go_on_with_the_next_generation(faces: Stage) -> None:
    page = await faces.watch()
    await page.until_playing(1)
    await faces.fleet.push("demo", LONG, boundary=True)
    await until_caption(page, 1, 4)
    faces.owner(await faces.live()).kill()
    await faces.until_epoch(2)
    await until_caption(page, 2, 4)
    found = await page.until(lambda look: epochs(look) == [1, 2], "two generations")
    assert found["connects"] == 1
    seen = [each["epoch"] for each in await captions(page)]
    assert seen == sorted(seen), "no lower generation after a higher one"
