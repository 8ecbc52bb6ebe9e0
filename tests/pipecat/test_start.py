"""The start service with a real client: `POST /start`, offers for the current generation, and a Worker that dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from pipecat.transports.base_transport import TransportParams

from dhsched.client import Client
from dhsched.local.ports import free_port
from dhsched.pipecat.peer import Peer
from dhsched.pipecat.signalling import MALFORMED, REFUSED, SUPERSEDED, Calling
from dhsched.pipecat.start import StartOptions, StartService
from dhsched.worker.runtimes import null
from tests.harness.bot_workers import WAIT_S, bot_worker, until_ready, until_said
from tests.harness.fleet import Fleet, ended, fleet, until, until_so
from tests.harness.pipecat_bot import tone_of
from tests.harness.processes import Process, children_of, processes
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


class Talk:
    """A session with a real client, two Workers, and what its application is told."""

    def __init__(self, f: Fleet, workers: list[Process], client: Client, caller: Caller) -> None:
        self.fleet, self.workers, self.client, self.caller = f, workers, client, caller
        self.heard: list[dict[str, Any]] = []

    async def follow(self) -> None:
        async for event in self.client.events(self.caller.session):
            if event.name == "emitted" and event.data["name"] == "heard":
                self.heard.append(event.data["data"] | {"epoch": event.data["epoch"]})

    async def push(self, text: str) -> None:
        await self.client.push(self.caller.session, text, boundary=True)

    async def serving(self) -> Process:
        live = await self.client.get(self.caller.session)
        [found] = [each for each in self.workers if (live.worker or "").startswith(each.name)]
        return found

    async def until_epoch(self, epoch: int) -> None:
        async def current() -> int:
            return (await self.client.get(self.caller.session)).epoch

        await until_so(current, lambda found: found == epoch, f"epoch {epoch}", WAIT_S)


@asynccontextmanager
async def talking(folder: Path) -> AsyncIterator[Talk]:
    async with fleet(folder, with_loops=True) as f, processes(f) as p, aiohttp.ClientSession() as http:
        workers = [await bot_worker(p, name, "called") for name in ("w1", "w2")]
        await until_ready(f, 2)
        async with Client(f.dispatch, f.infer) as client, serving(f, client) as url:
            talk = Talk(f, workers, client, Caller(http, url))
            await talk.caller.start()
            following = asyncio.create_task(talk.follow())
            try:
                yield talk
            finally:
                await ended(following)
                await talk.caller.close()


async def test_a_drain_moves_the_client_at_the_end_of_a_sentence(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        caller = talk.caller
        await caller.connect()
        await talk.push("word " * 20)
        await until(lambda: hears(caller, 1), "the first generation", WAIT_S)
        worker = (await talk.client.get(caller.session)).worker
        assert worker is not None
        await talk.client.drain(worker)
        staying = asyncio.create_task(caller.stay_connected(lambda: hears(caller, 2), connected=True))
        await talk.until_epoch(2)
        await talk.push("word " * 20)
        async with asyncio.timeout(WAIT_S):
            await staying
        await until_said(talk.fleet, caller.session, 2)
        await until(lambda: len(talk.heard) == 2, "what was heard", WAIT_S)
        assert [(each["seq"], each["epoch"], each["cut"]) for each in talk.heard] == [(1, 1, False), (2, 2, False)]
        assert caller.signals == ["renegotiate"], "a client of Pipecat's makes a new connection, and does not go"
        await talk.client.end(caller.session)
        await until(lambda: caller.signals[1:] == ["peerLeft"], "the end of the session", WAIT_S)


@pytest.mark.parametrize("child", ["frozen too", "runs on"])
async def test_a_thawed_worker_has_lost_the_client(tmp_path: Path, child: str) -> None:
    """Its bot is a process of its own, which may go on to speak while the Worker is frozen."""
    async with talking(tmp_path) as talk:
        caller = talk.caller
        await caller.connect()
        await talk.push("word " * 20)
        await until(lambda: hears(caller, 1), "the first generation", WAIT_S)
        zombie = await talk.serving()
        also = children_of(zombie.pid) if child == "frozen too" else []
        zombie.freeze()
        for pid in also:
            os.kill(pid, signal.SIGSTOP)
        # A client that has not noticed, and stays; the other one is the same client after it has.
        stayed = Caller(caller._http, caller._url)
        stayed._pc, stayed._tasks, caller._pc, caller._tasks = caller._pc, caller._tasks, None, []
        try:
            async with asyncio.timeout(WAIT_S):
                await caller.stay_connected(lambda: hears(caller, 2))
            assert (await talk.client.get(caller.session)).epoch == 2
            for pid in also:
                os.kill(pid, signal.SIGCONT)
            zombie.thaw()
            await until(lambda: stayed.state in ("closed", "failed"), "the end of the first", WAIT_S)
            await talk.push("word " * 20)
            await until_said(talk.fleet, caller.session, 2)
            assert hears(caller, 2) and caller.state == "connected"
        finally:
            await stayed.close()


@asynccontextmanager
async def serving(f: Fleet, client: Client, **options: Any) -> AsyncIterator[str]:
    service = StartService(client, StartOptions("demo", **options))
    async with TestServer(service.app()) as server:
        service.own_url = str(server.make_url("")).rstrip("/")
        yield service.own_url


async def test_a_superseded_generation_lets_its_client_go(tmp_path: Path) -> None:
    """Even if its runtime goes on: the start service tells it."""
    async with fleet(tmp_path, with_loops=True) as f, aiohttp.ClientSession() as http, open_service(f) as url:
        for name in ("a", "b"):
            await f.start_worker(null, name)
        caller = Caller(http, url)
        await caller.start()
        calling = Calling.of((await f.get(f"/v1/lives/{caller.session}"))["metadata"])
        assert calling is not None
        peers = [Peer(TransportParams(audio_out_enabled=True), (), asyncio.Event()) for _ in range(2)]
        dialling = [asyncio.create_task(peers[0].dial(calling, 1))]
        try:
            await caller.connect()
            await until(lambda: caller.pings > 1, "the connection", WAIT_S)
            first = caller.pc_id
            assert (await f.reassign(caller.session))[0] == 200
            dialling.append(asyncio.create_task(peers[1].dial(calling, 2)))
            await until(lambda: caller.signals == ["renegotiate"] and caller.state == "closed", "its end", WAIT_S)
            status, refused = await caller.go_on()
            assert status == 400 and "make a new one" in refused["detail"]
            await caller.connect()
            await until(lambda: caller.pings > 1, "the next connection", WAIT_S)
            assert caller.pc_id != first, "ids of two processes differ"
            # A bot that leaves asks the service whether the live goes on.
            await peers[1].leave(calling)
            await until(lambda: caller.signals == ["renegotiate", "renegotiate"], "the news", WAIT_S)
            await caller.connect()
            await until(lambda: caller.pings > 1, "the next connection", WAIT_S)
            assert (await f.post(f"{f.dispatch[0]}/v1/lives/{caller.session}/end"))[0] == 200
            await peers[1].leave(calling)
            await until(lambda: caller.signals[2:] == ["peerLeft"], "the end of the session", WAIT_S)
        finally:
            for each in dialling:
                await ended(each)
            await caller.close()


@asynccontextmanager
async def open_service(f: Fleet, **options: Any) -> AsyncIterator[str]:
    async with Client(f.dispatch, f.infer) as client, serving(f, client, **options) as url:
        yield url


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
    async with fleet(tmp_path, with_loops=True) as f, aiohttp.ClientSession() as http, open_service(f) as url:
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
        over = await first.receive(timeout=WAIT_S)
        assert over.type is aiohttp.WSMsgType.CLOSE and over.data == SUPERSEDED, "it is sent away, without an offer"
        # A generation that thaws and dials again is refused, and so is one that does not know the secret.
        again = await dial(http, url, metadata, 1)
        assert (await again.receive(timeout=WAIT_S)).data == SUPERSEDED
        wrong = {"pipecat": {**metadata["pipecat"], "secret": "guessed"}}
        stranger = await dial(http, url, wrong, 3)
        assert (await stranger.receive(timeout=WAIT_S)).data == REFUSED
        patching = asyncio.create_task(http.patch(caller.where, json={"pc_id": "x", "candidates": []}))
        asked = json.loads(await second.receive_bytes(timeout=WAIT_S))
        assert asked["pc_id"] == "x"
        await second.send_bytes(json.dumps({"id": asked["id"], "error": "not known"}).encode())
        async with await patching as response:
            assert response.status == 404


async def test_what_cannot_be_started_is_refused_in_words(tmp_path: Path) -> None:
    options: Any = {"start_key": "open sesame", "origins": ("https://app.example",), "wait_s": 0.0}
    async with (
        fleet(tmp_path, with_loops=True) as f,
        aiohttp.ClientSession() as http,
        open_service(f, **options) as url,
    ):

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
        assert (await silent.receive(timeout=WAIT_S)).data == MALFORMED
