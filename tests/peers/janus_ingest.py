"""Janus as a WHIP ingest: `python -m tests.peers.janus_ingest IP PORT JANUS_URL`, in the network of this process.

Janus speaks no WHIP by itself, so its HTTP API is called for each request: an offer becomes a publisher of its
VideoRoom, a DELETE ends it. What others would watch there is watched here: a subscriber of the room decodes it, and
what it shows is printed as `ingesting.py` does.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from typing import Any

import aiohttp
from aiohttp import web

from tests.harness.fleet import until_so
from tests.harness.ingest import Ingested

PLUGIN = "janus.plugin.videoroom"
ROOM = 1234


class Janus:
    """One session at Janus, and its events by transaction."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._events: dict[str, asyncio.Future[Any]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await until_so(self._answers, bool, "Janus to answer")
        created = await self._post("", {"janus": "create"})
        self._url += f"/{created['data']['id']}"
        self._polling = asyncio.create_task(self._poll())

    async def _answers(self) -> bool:
        try:
            async with self._http.get(f"{self._url}/info") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def attach(self) -> str:
        return str((await self._post("", {"janus": "attach", "plugin": PLUGIN}))["data"]["id"])

    async def call(self, handle: str, body: dict[str, Any], jsep: dict[str, str] | None = None) -> Any:
        """Send a message to the plugin and return its answer, which for most comes as an event."""
        transaction = secrets.token_hex(8)
        self._events[transaction] = asyncio.get_running_loop().create_future()
        message = {"janus": "message", "transaction": transaction, "body": body, **({"jsep": jsep} if jsep else {})}
        answer = await self._post(f"/{handle}", message)
        return answer if answer["janus"] == "success" else await asyncio.wait_for(self._events[transaction], 60)

    async def detach(self, handle: str) -> None:
        await self._post(f"/{handle}", {"janus": "detach"})

    async def _post(self, path: str, message: dict[str, Any]) -> Any:
        async with self._http.post(self._url + path, json={"transaction": "t", **message}) as response:
            answer = await response.json()
        assert answer["janus"] in ("success", "ack"), answer
        return answer

    async def _poll(self) -> None:
        while True:
            async with self._http.get(self._url) as response:
                event = await response.json()
            found = self._events.get(event.get("transaction", ""))
            if event["janus"] == "event" and found is not None and not found.done():
                found.set_result(event)


class JanusIngest:
    def __init__(self, janus: Janus) -> None:
        self.offers = 0
        self.deleted = 0
        self.shown: Ingested | None = None
        self._janus = janus

    async def post(self, request: web.Request) -> web.Response:
        self.offers += 1
        janus, handle = self._janus, await self._janus.attach()
        await janus.call(handle, {"request": "create", "room": ROOM, "publishers": 1, "videocodec": "vp8"})
        body = {"request": "joinandconfigure", "room": ROOM, "ptype": "publisher", "id": 1}
        event = await janus.call(handle, body, {"type": "offer", "sdp": await request.text()})
        headers = {"Location": f"/r/{handle}"}
        self._watching = asyncio.create_task(self._watch())
        return web.Response(status=201, text=event["jsep"]["sdp"], content_type="application/sdp", headers=headers)

    async def _watch(self) -> None:
        """Subscribe to what is published, as a viewer behind Janus does."""
        janus, handle = self._janus, await self._janus.attach()
        body = {"request": "join", "ptype": "subscriber", "room": ROOM, "streams": [{"feed": 1}]}
        # Until the publisher's connection is up, there is no such feed.
        event = await until_so(lambda: janus.call(handle, body), lambda found: "jsep" in found, "the feed")
        self.shown = Ingested("janus")
        answer = await self.shown.answer(event["jsep"]["sdp"])
        await janus.call(handle, {"request": "start"}, {"type": "answer", "sdp": answer})

    async def delete(self, request: web.Request) -> web.Response:
        self.deleted += 1
        await self._janus.detach(request.match_info["handle"])
        return web.Response()


async def main(host: str, port: int, url: str) -> None:
    async with aiohttp.ClientSession() as http:
        janus = Janus(http, url)
        await janus.open()
        ingest = JanusIngest(janus)
        app = web.Application()
        app.router.add_post("/whip/{live}", ingest.post)
        app.router.add_delete("/r/{handle}", ingest.delete)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        print("ready", flush=True)
        while True:
            await asyncio.sleep(0.2)
            shown = ingest.shown
            epoch = next((n for n in (1, 2, 3) if shown is not None and shown.shows(n)), 0)
            print(json.dumps({"offers": ingest.offers, "deleted": ingest.deleted, "epoch": epoch}), flush=True)


if __name__ == "__main__":
    from dhsched.local.child import follow_parent

    follow_parent()
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
