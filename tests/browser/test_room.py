"""What a viewer sees while Workers are frozen and thawed, and while others try to publish, in a real browser.

The Workers show a test card, whose colour says who is on air.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.browser.testcard import Card, Show, begin, colour
from tests.browser.watching import Stage, epochs


def shows(found: dict[str, Any], epoch: int) -> bool:
    return all(abs(a - b) < 60 for a, b in zip(found["pixel"], colour(epoch), strict=True))


async def test_a_zombie_never_reaches_the_viewer(theatre: Stage) -> None:
    """Frozen, superseded, thawed: what it goes on to send is dropped; a room that was restarted in between as well."""
    page = await theatre.watch()
    await page.until_playing(1)
    zombie = theatre.owner(await theatre.live())
    zombie.freeze()
    placed = await theatre.until_epoch(2)
    assert theatre.owner(placed) is not zombie
    await page.until_playing(2)
    zombie.thaw()
    for _ in range(10):
        found = await page.look()
        assert shows(found, 2) and found["state"]["on_air"] == 2
        await asyncio.sleep(0.1)

    zombie, survivor = theatre.owner(placed), placed["epoch"]
    zombie.freeze()
    theatre.room.kill()
    await theatre.room.ended()
    await theatre.start_room()
    # Thawed before anybody else has published: the new room knows nothing, and asks.
    placed = await theatre.until_epoch(survivor + 1)
    zombie.thaw()
    after = await page.until_playing(placed["epoch"])
    assert shows(after, placed["epoch"])
    assert epochs(after) == [placed["epoch"]], "the new room has shown nothing else"


async def test_refusals_leave_the_owner_on_air(theatre: Stage) -> None:
    """Forged, future and foreign tokens, malformed packets: each is refused, and the picture goes on."""
    page = await theatre.watch()
    await page.until_playing(1)
    live = await theatre.live()
    tokens = theatre.fleet.controllers[0].pull_text.tokens
    from dhsched.tokens import Boot, Publishing
    from dhsched.types import Generation

    def token(worker: str, epoch: int) -> str:
        return tokens.issue_publish(Publishing("default/demo", Generation(worker, epoch)))

    good = token(live["worker"], 1)
    header, claims, signature = good.split(".")
    boot = tokens.issue(Boot(live["worker"], "b", "a", "gpu", 4))
    other = "b#2" if live["worker"] != "b#2" else "a#1"
    for bad, status in (
        *(("", 401), ("x.y.z", 401), (f"{header}.{claims}.{signature[::-1]}", 401), (boot, 401)),
        *((token(live["worker"], 7), 403), (token(other, 1), 403)),
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await connect(theatre, bad)
        assert refused.value.status == status
    for first, frame, why in (
        (begin("default/demo", 2), b"", "about default/demo@2"),
        (begin("default/other", 1), b"", "about default/other@1"),
        ("{}", b"", "does not fit"),
    ):
        socket = await connect(theatre, good)
        await socket.send_str(first)
        await socket.send_bytes(frame)
        assert why in await closed(socket)
    before = await page.look()
    after = await page.until(lambda found: found["frames"] > before["frames"] + 15, "the owner to go on")
    assert shows(after, 1) and epochs(after) == [1] and after["connects"] == 1
    figures = await theatre.metrics()
    assert (
        figures["dhsched_room_publishers_refused_total"] == 6
        and figures["dhsched_room_publishers_malformed_total"] == 3
    )

    # Of two connections of one generation the latest counts, and it begins with a keyframe.
    async with asyncio.timeout(90):
        publishing = asyncio.create_task(Show("default/demo", 1, Card(2)).publish(publish_of(theatre, good)))
        try:
            await page.until(lambda found: shows(found, 2), "the second connection's picture")
            # Ended: the page says so, although somebody who holds a token goes on sending.
            assert (await theatre.fleet.post(f"{theatre.fleet.dispatch[0]}/v1/lives/demo/end"))[0] == 200
            await page.page.wait_for_selector('#connection[data-state="ended"]')
            assert "has ended" in (await page.page.inner_text("#veil"))
            await page.until(lambda found: found["state"]["on_air"] == 0, "nobody on air")
        finally:
            publishing.cancel()


def publish_of(theatre: Stage, token: str) -> Any:
    from dhsched.worker import Publish

    return Publish(theatre.room.url, token)


async def connect(theatre: Stage, token: str) -> aiohttp.ClientWebSocketResponse:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return await theatre.fleet.http.ws_connect(f"{theatre.room.url}/v1/publish", headers=headers)


async def closed(socket: aiohttp.ClientWebSocketResponse) -> str:
    """Why the room closed it."""
    async with asyncio.timeout(10):
        while True:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.CLOSE:
                assert message.data == 4400
                return str(message.extra)
            assert message.type is aiohttp.WSMsgType.TEXT, message
