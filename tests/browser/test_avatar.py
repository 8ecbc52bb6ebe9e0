"""A face that speaks, seen and heard in a real browser while its Workers die and are drained."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

import pytest
from yarl import URL

from tests.browser.watching import QUIET, Stage, Watching, epochs, look_at

LONG = "This is a sentence that takes a while to say, so that there is time to do something to the one who says it."


async def test_watch_talk_and_kill(faces: Stage) -> None:
    """Pictures come; sound when and only when there is text; kill -9 of the Worker and the same page goes on."""
    page = await faces.watch()
    first = await page.until_playing()
    await page.page.click("#sound")
    await asyncio.sleep(0.5)
    assert await page.energy(0.5) < QUIET, "nobody has said anything"
    await page.page.fill("#text", " ".join([LONG] * 8))  # It would take longer to say than is waited for below.
    await page.page.keyboard.press("Enter")
    await page.until_sound()
    await page.page.keyboard.press("Escape")
    await page.page.locator("#note", has_text="interrupted").wait_for()
    await page.until_quiet()

    await page.page.fill("#text", LONG)
    await page.page.click("#send")
    await page.until_sound()
    faces.owner(await faces.live()).kill()
    await faces.until_epoch(2)
    after = await page.until_playing(2)
    assert after["connects"] == 1 and after["restarts"] == first["restarts"] and after["ufrag"] == first["ufrag"]
    assert epochs(after) == [1, 2]
    # The page reads the epoch from the live's events, which may come after the first picture.
    await page.page.locator("#epoch", has_text=re.compile("^2$")).wait_for()
    await page.page.locator("tbody tr[data-epoch='2']").wait_for()
    rows = await page.page.query_selector_all("tbody tr")
    assert [await row.get_attribute("data-epoch") for row in rows] == ["2", "1"]
    await page.until_sound()  # It was not acked, so it is said again.


@pytest.mark.long
async def test_the_picture_of_the_readme(faces: Stage) -> None:
    """What a viewer sees after kill -9 of the Worker that was speaking: docs/images/talking.png."""
    page = await faces.watch(viewport={"width": 1180, "height": 760})
    await page.until_playing()
    await page.page.click("#sound")
    said = "Good evening. I am Anna, and whatever happens to my machine, I will finish this sentence."
    await page.page.fill("#text", said)
    await page.page.click("#send")
    await page.until_sound()
    await asyncio.sleep(2)  # The first generation has been seen for a while.
    faces.owner(await faces.live()).kill()
    await faces.until_epoch(2)
    await page.until_playing(2)
    await page.until_sound()
    await asyncio.sleep(2)  # And so has the second.
    await look_at(page, "talking")
    assert epochs(await page.look()) == [1, 2]


async def test_the_mouth_opens_with_the_sound(faces: Stage) -> None:
    """The mouth moves while the face is heard, and rests when it has said all.

    That louder is more open, picture by picture, is shown where both are made (test_avatar_speech): on a slow machine
    a browser shows a picture long after its sound.
    """
    page = await faces.watch()
    await page.until_playing()
    await page.page.click("#sound")
    shut = 3 * max(await page.mouth(20))  # Lips are dark too, and the head moves a little.
    for sentence in ("Papa and mama are far away.", "Open your arms.", "Good afternoon."):
        await faces.fleet.push("demo", sentence, boundary=True)
    await page.until_sound()
    spoken = await page.mouth(90)
    assert max(spoken) > shut > 0, (shut, spoken)
    await page.until_quiet()
    for _ in range(20):
        if max(await page.mouth(10)) <= shut:
            break
    assert max(await page.mouth(30)) <= shut, (shut, spoken)


SENTENCES = 14  # More than a Worker is granted at once: what it has been granted it finishes before it is left.


@pytest.mark.long
async def test_a_drain_loses_and_repeats_no_sentence(faces: Stage) -> None:
    page = await faces.watch()
    await page.until_playing(1)
    await page.page.click("#sound")
    for n in range(SENTENCES):
        await faces.fleet.push("demo", f"Sentence {n + 1}.", boundary=True)
    await page.until_sound()
    source = (await faces.live())["worker"]
    url = URL(f"{faces.fleet.dispatch[0]}/v1/workers/{quote(source, safe='')}/drain", encoded=True)
    async with faces.fleet.http.post(url, json={}) as response:
        assert response.status < 300, await response.text()
    placed = await faces.until_epoch(2)
    assert placed["worker"] != source and placed["cause"] == "drain"
    assert placed["acked"] < SENTENCES, "it moved in the middle"
    after = await page.until_playing(2)
    assert after["connects"] == 1 and epochs(after) == [1, 2]
    for _ in range(600):
        live = await faces.live()
        if live["acked"] == SENTENCES:
            break
        await asyncio.sleep(0.1)
    assert live["acked"] == live["appended"] == SENTENCES and live["epoch"] == 2
    assert not any(live["dropped"].values())


@pytest.mark.long
async def test_fifty_words_last_about_ten_times_five_words(faces: Stage) -> None:
    page = await faces.watch()
    await page.until_playing(1)
    await page.page.click("#sound")
    short = await spoken_s(faces, page, "one two three four five")
    long = await spoken_s(faces, page, "one two three four five " * 10)
    assert 6 < long / short < 14, f"5 words take {short:.1f} s and 50 take {long:.1f} s"


async def spoken_s(faces: Stage, page: Watching, text: str) -> float:
    """How much sound a text makes, by what the browser played."""
    await page.until_quiet()
    await faces.fleet.push("demo", text, boundary=True)
    await page.until_sound()
    sounding = 0.3
    for _ in range(300):
        sounding += 0.2 if (level := await page.energy(0.2)) > QUIET else 0.0
        if level <= QUIET and await page.energy(0.4) <= QUIET:
            break
    return sounding
