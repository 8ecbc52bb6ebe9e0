"""The start service with a real client: `POST /start`, offers for the current generation, and a Worker that dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from dhsched.client import Client
from dhsched.local.ports import free_port
from dhsched.pipecat.start import StartOptions, StartService
from dhsched.worker.runtimes import null
from tests.harness.bot_workers import WAIT_S, bot_worker, until_ready, until_said
from tests.harness.fleet import Fleet, fleet, until
from tests.harness.pipecat_bot import tone_of
from tests.harness.processes import processes
from tests.harness.webrtc_caller import Caller

pytestmark = pytest.mark.pipecat


def hears(caller: Caller, epoch: int) -> bool:
    """Several frames in a row within a tenth of the generation's tone."""
    wanted = tone_of(epoch)
    return sum(abs(tone - wanted) < wanted / 10 for tone in caller.tones[-10:]) >= 5


async def test_a_client_reconnects_at_the_same_address_and_hears_the_next_generation(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with fleet(tmp_path, with_loops=True) as f, processes(f) as p, aiohttp.ClientSession() as http:
        workers = [await bot_worker(p, name, "called") for name in ("w1", "w2")]
        await until_ready(f, 2)
        where = ("--dispatch", ",".join(f.dispatch), "--port", str(port))
        service = await p.start("start", "--bot", "demo", *where, module="dhsched.pipecat.start")
        await until(lambda: any("starting demo" in str(line) for line in service.printed), "the service", WAIT_S)
        caller = Caller(http, url)
        try:
            started = await caller.start(transport="webrtc", body={"name": "Ada"})
            assert started == {"sessionId": caller.session}
            async with Client(f.dispatch, f.infer) as client:
                live = await client.get(caller.session)
                assert live.metadata["body"] == {"name": "Ada"}
                await client.push(caller.session, "word " * 30, boundary=True)
                assert (await client.get(caller.session)).acked == 0, "nobody listens yet"
                await caller.connect()
                await until(lambda: hears(caller, 1), "the first generation", WAIT_S)
                [victim] = [each for each in workers if live.worker.startswith(each.name)]
                victim.kill()
                async with asyncio.timeout(WAIT_S):
                    await caller.stay_connected(lambda: hears(caller, 2))
                await until_said(f, caller.session, 1)
                assert (await client.get(caller.session)).epoch == 2
        finally:
            await caller.close()


@asynccontextmanager
async def serving(f: Fleet, **options: Any) -> AsyncIterator[str]:
    async with Client(f.dispatch, f.infer) as client:
        service = StartService(client, StartOptions("demo", **options))
        async with TestServer(service.app()) as server:
            yield str(server.make_url("")).rstrip("/")


async def dial(http: aiohttp.ClientSession, url: str, metadata: Any, epoch: int) -> aiohttp.ClientWebSocketResponse:
    """What a bot of this generation says first."""
    socket = await http.ws_connect(f"{url}/bots")
    calling = metadata["pipecat"]
    hello = {"live": calling["live"], "epoch": epoch, "secret": calling["secret"]}
    await socket.send_bytes(json.dumps(hello).encode())
    return socket


async def answer(socket: aiohttp.ClientWebSocketResponse, sdp: str) -> None:
    asked = json.loads(await socket.receive_bytes(timeout=WAIT_S))
    said = {"sdp": sdp, "type": "answer", "pc_id": f"pc of {sdp}"}
    await socket.send_bytes(json.dumps({"id": asked["id"], "answer": said}).encode())


OFFER = {"sdp": "v=0", "type": "offer"}


async def test_an_older_generation_gets_no_offer_and_no_answer_of_it_reaches_a_client(tmp_path: Path) -> None:
    async with fleet(tmp_path, with_loops=True) as f, aiohttp.ClientSession() as http, serving(f) as url:
        await f.start_worker(null, "a")
        await f.start_worker(null, "b")
        caller = Caller(http, url)
        await caller.start()
        metadata = (await f.get(f"/v1/lives/{caller.session}"))["metadata"]
        first = await dial(http, url, metadata, 1)
        asking = asyncio.create_task(http.post(caller.where, json=OFFER))
        asked = json.loads(await first.receive_bytes(timeout=WAIT_S))
        # The live moves on while the first generation makes its answer.
        assert (await f.reassign(caller.session))[0] == 200
        late = {"id": asked["id"], "answer": {"sdp": "first", "type": "answer", "pc_id": "1"}}
        await first.send_bytes(json.dumps(late).encode())
        second = await dial(http, url, metadata, 2)
        await answer(second, "second")
        async with await asking as response:
            assert (response.status, (await response.json())["sdp"]) == (200, "second")
        ended = await first.receive(timeout=WAIT_S)
        assert ended.type is aiohttp.WSMsgType.CLOSE and ended.data == 4403, "it is sent away, without an offer"
        # A generation that thaws and dials again is refused, and so is one that does not know the secret.
        again = await dial(http, url, metadata, 1)
        assert (await again.receive(timeout=WAIT_S)).data == 4403
        wrong = {"pipecat": {**metadata["pipecat"], "secret": "guessed"}}
        stranger = await dial(http, url, wrong, 3)
        assert (await stranger.receive(timeout=WAIT_S)).data == 4403
        patching = asyncio.create_task(http.patch(caller.where, json={"pc_id": "x", "candidates": []}))
        asked = json.loads(await second.receive_bytes(timeout=WAIT_S))
        assert asked["pc_id"] == "x"
        await second.send_bytes(json.dumps({"id": asked["id"], "error": "not known"}).encode())
        async with await patching as response:
            assert response.status == 404


async def test_what_cannot_be_started_is_refused_in_words(tmp_path: Path) -> None:
    options = {"start_key": "open sesame", "origins": ("https://app.example",), "wait_s": 0.0}
    async with fleet(tmp_path, with_loops=True) as f, aiohttp.ClientSession() as http, serving(f, **options) as url:

        async def post(path: str, body: Any, **headers: str) -> tuple[int, str]:
            shown = {"Authorization": "Bearer open sesame", **headers}
            async with http.post(url + path, json=body, headers=shown) as response:
                return response.status, (await response.json()).get("detail", "")

        assert (await post("/start", {}, Authorization="Bearer wrong"))[0] == 401
        status, detail = await post("/start", {"transport": "daily"})
        assert status == 400 and "'daily' is not allowed" in detail
        status, detail = await post("/start", {})
        assert status == 503 and "Worker" in detail, "there is none, and Dispatch's reason is passed on"
        assert (await post("/sessions/nobody/api/offer", OFFER))[0] == 404
        assert (await post("/sessions/nobody/api/offer", {"sdp": 1}))[0] == 400
        assert (await post("/start", [1]))[0] == 400
        async with http.get(f"{url}/status", headers={"Origin": "https://app.example"}) as response:
            assert await response.json() == {"status": "ready", "transports": ["webrtc"]}
            assert response.headers["Access-Control-Allow-Origin"] == "https://app.example"
        async with http.options(f"{url}/start", headers={"Origin": "https://other.example"}) as response:
            assert "Access-Control-Allow-Origin" not in response.headers
        silent = await http.ws_connect(f"{url}/bots")
        await silent.send_str("hello")
        assert (await silent.receive(timeout=WAIT_S)).data == 4400
