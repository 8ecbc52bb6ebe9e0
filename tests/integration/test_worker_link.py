"""The Worker's link to Dispatch, at its ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from dhsched.dispatch import worker_link
from dhsched.links.messages import Register, Report, encode
from dhsched.worker.dispatch_link import Boot, DispatchLink
from tests.harness.fleet import Record, fleet, until
from tests.harness.serving import serving


async def test_a_worker_that_vanishes_is_noted_with_the_beat_it_had(tmp_path: Path) -> None:
    """Not with the time: the replica may read that very beat for the first time after the link was closed."""
    async with fleet(tmp_path) as f, serving(f.address) as api:
        f.dispatch[:] = [f"http://127.0.0.1:{api.client.port}"]
        worker = await f.start_worker(Record(), "w1")
        await until(lambda: api.context.fleet.view.workers, "the Worker in the view")
        await worker.kill()
        await until(lambda: "w1#1" in api.replica.silences.hung_up, "the replica to notice")
        assert api.replica.silences.hung_up["w1#1"] == (await api.context.records.workers.beats())["w1#1"].beat > 0


async def test_a_worker_that_is_only_silent_has_not_hung_up(tmp_path: Path, monkeypatch: Any) -> None:
    """It is frozen or cut off: how long that may last is `worker_ttl_s`, not a second."""
    monkeypatch.setattr(worker_link, "HEARTBEAT_S", 0.2)
    async with fleet(tmp_path) as f, serving(f.address) as api:
        at = f"http://127.0.0.1:{api.client.port}/v1/workers/link"
        async with f.http.ws_connect(at, autoping=False) as socket:
            await socket.send_bytes(encode([Register("w1", "boot", "gpu", 4, "", "")]))
            await socket.receive()
            await socket.send_bytes(encode([Report(0, 0)]))
            heard = [await socket.receive() for _ in range(2)]
            assert aiohttp.WSMsgType.PING in {each.type for each in heard}, "which nobody answers"
            while not socket.closed:
                await socket.receive()
        await asyncio.sleep(0.1)
        assert api.replica.silences.hung_up == {}


class Deaf:
    """An agent that nobody tells anything."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: Report(0, 0) if name == "report" else None


async def test_a_link_that_breaks_under_a_ping_is_made_anew(tmp_path: Path, monkeypatch: Any) -> None:
    """A process that was frozen wakes to a ping on a connection that is gone, and must not die of it."""
    connections = 0

    async def serve(request: web.Request) -> web.WebSocketResponse:
        nonlocal connections
        connections += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.ping()
        await asyncio.sleep(5)
        return socket

    async def cannot_answer(*_: Any) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(aiohttp.ClientWebSocketResponse, "pong", cannot_answer)
    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        boot = Boot(Register("w1", "boot", "gpu", 4, "", ""))
        async with aiohttp.ClientSession() as http:
            deaf = Deaf()
            link = DispatchLink(http, [url], boot, deaf, on_registered=deaf.registered, on_controllers=deaf.controllers)
            running = asyncio.create_task(link.run())
            await until(lambda: connections >= 2, "a second connection")
            assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    finally:
        await runner.cleanup()
