"""Captions over real sockets: from a publisher through the room to a viewer's session, and to nobody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from dhsched.room.packets import CAPTION, Caption, Packet, write_packet
from dhsched.worker import Session
from tests.browser.testcard import Card, begin
from tests.harness.fleet import until
from tests.harness.keyed import bearer
from tests.harness.theatre import Theatre, Watcher, idle, theatre


class Teller:
    """A runtime that shows one picture, and the caption of whatever the test says."""

    def __init__(self) -> None:
        self.sockets: dict[str, aiohttp.ClientWebSocketResponse] = {}

    async def __call__(self, session: Session) -> None:
        publishing = asyncio.create_task(self._publish(session))
        try:
            await idle(session)
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)

    async def _publish(self, session: Session) -> None:
        await session.claimed.wait()
        epoch, publish = session.generation.epoch, session.publish
        assert publish is not None
        headers = {"Authorization": f"Bearer {publish.token}"}
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(f"{publish.url}/v1/publish", headers=headers) as socket,
        ):
            await socket.send_str(begin(session.live, epoch))
            for packet in Card(epoch).step():
                await socket.send_bytes(write_packet(packet))
            self.sockets[session.live] = socket
            await session.stopping.wait()

    async def tell(self, text: str, *, cut: bool = False) -> None:
        caption = Packet(CAPTION, False, 0, msgspec.json.encode(Caption(1, text, cut)))
        await self.sockets["default/demo"].send_bytes(write_packet(caption))


@asynccontextmanager
async def captions(at: Theatre, watcher: Watcher, token: str) -> AsyncIterator[aiohttp.ClientResponse]:
    async with at.fleet.http.get(f"{at.url}{watcher.location}/captions", headers=bearer(token)) as response:
        yield response


async def next_caption(response: aiohttp.ClientResponse) -> Any:
    async with asyncio.timeout(30):
        async for line in response.content:
            if line.startswith(b"data: "):
                return json.loads(line[6:])
    raise AssertionError("the stream has ended")


async def test_a_session_gets_captions_until_it_ends_and_no_one_elses(tmp_path: Path) -> None:
    async with theatre(tmp_path, access="keys") as at:
        teller, watcher = Teller(), Watcher()
        await at.fleet.start_worker(teller, "a")
        await at.fleet.create("demo")
        await at.fleet.create("other")
        token = await at.viewer_token(grants=["watch"])
        await watcher.connect(at, token=token)
        await until(lambda: at.room.rooms.on_air == len(teller.sockets) == 2, "both lives on air")
        for wrong, status in ((await at.viewer_token("other"), 403), (await at.viewer_token(grants=["say"]), 403)):
            async with captions(at, watcher, wrong) as response:
                assert response.status == status
        async with captions(at, watcher, token) as response:
            assert response.status == 200 and response.content_type == "text/event-stream"
            for text, cut in (("Hello", False), ("Hello world", True)):
                await teller.tell(text, cut=cut)
                assert await next_caption(response) == {"epoch": 1, "seq": 1, "text": text, "cut": cut}
            async with captions(at, watcher, token) as newer:
                assert (await next_caption(newer))["text"] == "Hello world", "what is fresh comes first"
                async with asyncio.timeout(30):
                    assert b"data:" not in await response.read(), "the earlier stream of a session ends"
                async with at.fleet.http.delete(at.url + watcher.location, headers=bearer(token)) as left:
                    assert left.status == 200
                async with asyncio.timeout(30):
                    assert b"data:" not in await newer.read()
        await watcher.close()
        await teller.tell("x" * 1_001)
        await until(lambda: at.room.rooms.counts.malformed == 1, "the end of a malformed publisher")
