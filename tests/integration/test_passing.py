"""One address: input and its events through Dispatch, as an application that knows nothing else."""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha1
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs
from yarl import URL

from dhsched.access.api_keys import id_of
from dhsched.access.callers import OPEN
from dhsched.client import Client
from dhsched.dispatch import passing
from dhsched.dispatch.app import Replica, open_context
from dhsched.input_routes import INPUT
from dhsched.links.preference import in_order
from dhsched.settings import DispatchSettings
from dhsched.web import serve
from dhsched.web.server import CALLER
from tests.harness.fleet import Fleet, Record, fleet, until, until_so
from tests.harness.keyed import bearer, keyed
from tests.harness.servers import empty_server


async def pushed(f: Fleet, live: str, text: str, **fields: Any) -> tuple[int, Any]:
    return await f.post(f"{f.dispatch[0]}/v1/lives/{live}/text", {"text": text, **fields})


async def test_text_streams_and_events_go_through_dispatch(tmp_path: Path) -> None:
    async with fleet(tmp_path, dispatch=2) as f:
        record = Record()
        await f.start_worker(record, "w1")
        await f.create("L")
        async with Client(f.dispatch) as client:
            assert (await client.push("L", "one", request_id="r1")).seq == 1
            assert (await client.push("L", "one", request_id="r1")).duplicate
            async with client.stream("L") as stream:
                for text in ("two", "three"):
                    await stream.send(text)
            await until(lambda: record.texts("L") == ["one", "two", "three"], "the items at the Worker")
            seen = asyncio.create_task(names_of_events(client))
            await client.end("L", after_pending=True)
            assert (await seen)[-1] == "ended"


async def names_of_events(client: Client) -> list[str]:
    return [event.name async for event in client.events("L")]


async def test_input_goes_to_the_controller_from_which_the_worker_pulls(tmp_path: Path) -> None:
    lives = [f"L{n}" for n in range(8)]
    async with fleet(tmp_path, infer=3) as f:
        record = Record()
        await f.start_worker(record, "w1", capacity=8)
        for live in lives:
            await f.create(live)
        serving = dict(zip(f.infer, f.controllers, strict=True))

        def is_pulled(live: str) -> bool:
            full = f"default/{live}"
            return full in serving[in_order(full, f.infer)[0]].context.pulls._granted

        await until(lambda: all(is_pulled(live) for live in lives), "a pull of each live where it prefers to be")
        hints: list[bytes] = []
        for infer in f.controllers:
            store = infer.context.store
            channel = store.keys.of("infer", infer.context.service.instance)
            await store.link.subscribe(channel, lambda _, live: hints.append(live))
        for text in ("one", "two"):
            for live in lives:
                assert (await pushed(f, live, text))[0] == 200
        await until(lambda: all(record.texts(live) == ["one", "two"] for live in lives), "both items of each live")
        assert hints == [], "each item was stored by the controller that hands it out"
        counted = [sum(each.context.metrics._outcomes.values()) for each in f.controllers]
        assert sum(counted) == 2 * len(lives) and sum(1 for each in counted if each) > 1


async def test_many_lives_share_a_stream_and_frames_come_back_as_they_are(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        record = Record()
        await f.start_worker(record, "w1")
        for live in ("L", "M"):
            await f.create(live)
        async with f.http.ws_connect(f"{f.dispatch[0]}/v1/stream?producer=p") as socket:
            await socket.send_str(json.dumps([{"live": "L", "n": 1, "text": "a"}, {"live": "M", "n": 1, "text": "b"}]))
            answers: list[Any] = []
            while len(answers) < 2:
                answers += json.loads((await socket.receive(timeout=10)).data)
            assert [(each["live"], each["n"], each["seq"]) for each in answers] == [("L", 1, 1), ("M", 1, 1)]
            assert len(f.controllers[0].context.connections.sockets) >= 1
            await socket.send_str("{")
            assert "BAD_REQUEST" in (await socket.receive(timeout=10)).data
        sockets = f.controllers[0].context.connections.sockets
        await until(lambda: len(sockets) <= 1, "the end of the controller's socket; the Worker's pull stays")


async def test_refusals_of_the_controller_come_back_unchanged(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        wrong: list[tuple[str, Any]] = [("nobody", {"text": "x"}), ("L", {"words": "x"}), ("L", {"text": "x" * 20_000})]
        for live, body in wrong:
            target = f"{live}/text"
            through = await f.post(f"{f.dispatch[0]}/v1/lives/{target}", body)
            direct = await f.post(f"{f.infer[0]}/v1/lives/{target}", body)
            assert through[0] == direct[0] >= 400
            assert {**through[1], "request_id": ""} == {**direct[1], "request_id": ""}
        status, problem = await f.post(f"{f.dispatch[0]}/v1/lives/L/text", {"text": "x" * 70_000})
        assert (status, problem["code"]) == (413, "TOO_LARGE")
        async with f.http.get(f"{f.dispatch[0]}/v1/lives/nobody/events") as response:
            assert (response.status, (await response.json())["code"]) == (404, "NOT_FOUND")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await f.http.ws_connect(f"{f.dispatch[0]}/v1/lives/L/stream?producer=a%20b")
        assert refused.value.status == 400


async def test_both_roles_describe_input_alike_and_answer_as_they_say(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        documents = []
        for url in (f.dispatch[0], f.infer[0]):
            async with f.http.get(f"{url}/openapi.json") as response:
                documents.append(await response.json())
        here, there = documents
        for operation in INPUT:
            said = here["paths"][operation.path][operation.method.lower()]
            assert said == there["paths"][operation.path][operation.method.lower()], operation.name
            assert said["operationId"] == operation.name and "NOT_READY" in str(said["responses"]["503"])
        assert "Pushed" in here["components"]["schemas"]
        await f.start_worker(Record(), "w1")
        await f.create("L")
        for url in (f.dispatch[0], f.infer[0]):
            described = here["paths"]["/v1/lives/{live_id}/events"]["get"]["responses"]
            async with f.http.get(f"{url}/v1/lives/L/events") as response:
                assert response.status == 200 and response.content_type in described["200"]["content"]
            for target in ("lives/L/stream", "stream"):
                async with f.http.get(f"{url}/v1/{target}") as response:
                    assert (response.status, (await response.json())["code"]) == (400, "BAD_REQUEST")
                    assert response.content_type == "application/problem+json"
                async with f.http.ws_connect(f"{url}/v1/{target}") as socket:
                    assert not socket.closed, "101, as described"


async def test_a_controller_that_is_gone_is_left_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(tmp_path) as f:
        await f.start_worker(Record(), "w1")
        await f.create("L")

        async def listed(self: passing.Passing, request: object) -> list[str]:
            return ["http://127.0.0.1:1", *f.infer]

        with monkeypatch.context() as patched:
            patched.setattr(passing.Passing, "controllers", listed)
            assert (await pushed(f, "L", "one"))[0] == 200
            async with f.http.ws_connect(f"{f.dispatch[0]}/v1/lives/L/stream") as socket:
                await socket.send_str('{"text": "two"}')
                assert json.loads((await socket.receive(timeout=10)).data)[0]["seq"] == 2


async def test_without_a_controller_the_answer_says_so(tmp_path: Path) -> None:
    async with fleet(tmp_path, infer=0) as f:
        status, problem = await pushed(f, "L", "one")
        assert (status, problem["code"]) == (503, "NOT_READY") and "Infer-Controller" in problem["detail"]


@pytest.mark.release
async def test_a_reader_that_leaves_ends_the_stream_at_the_controller(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:

        def connections() -> int:
            return sum(f.controllers[0].context.service.connections._by_key.values())

        record = Record()
        await f.start_worker(record, "w1")
        await f.create("L")
        assert (await pushed(f, "L", "one"))[0] == 200
        await until(lambda: record.texts("L"), "the item at the Worker")
        before = connections()
        async with f.http.get(f"{f.dispatch[0]}/v1/lives/L/events") as response:
            assert (await response.content.readline()).startswith(b"event: ")
            assert connections() == before + 1
        await until(lambda: connections() == before, "the end of the controller's stream")


async def listed_as(patched: pytest.MonkeyPatch, *urls: str) -> None:
    async def controllers(self: passing.Passing, request: object) -> list[str]:
        return [*urls]

    patched.setattr(passing.Passing, "controllers", controllers)


@asynccontextmanager
async def answering(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A controller of another kind: yield its URL."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def never(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Take the connection as a frozen process does, and say nothing."""
    await reader.read()


async def test_a_frozen_controller_is_left_for_the_next_by_a_websocket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "HANDSHAKE_S", 0.2, raising=False)
    async with fleet(tmp_path) as f, answering(never) as frozen:
        await f.start_worker(Record(), "w1")
        await f.create("L")
        await listed_as(monkeypatch, frozen, *f.infer)
        async with (
            asyncio.timeout(30),
            f.http.ws_connect(f"{f.dispatch[0]}/v1/lives/L/stream") as socket,
        ):
            await socket.send_str('{"text": "one"}')
            assert json.loads((await socket.receive()).data)[0]["seq"] == 1


async def test_pushes_that_wait_for_a_controller_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "PUSHES_MAX", 2, raising=False)
    async with fleet(tmp_path) as f, answering(never) as frozen:
        await listed_as(monkeypatch, frozen)
        stuck = [asyncio.create_task(pushed(f, "L", "one")) for _ in range(3)]
        done, waiting = await asyncio.wait(stuck, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        assert [(task.result()[0], task.result()[1]["code"]) for task in done] == [(503, "BUSY")]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_path_reaches_the_controller_as_it_was_sent(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        for target in ("/v1/lives/%2e%2e/stream", "/v1/lives/%2e%2e/events", "/v1/lives/a%2Fb/events"):
            answers = []
            for url in (f.dispatch[0], f.infer[0]):
                async with f.http.get(URL(url + target, encoded=True)) as response:
                    answers.append((response.status, (await response.json())["code"]))
            assert answers[0] == answers[1] == (400, "BAD_REQUEST"), target


async def test_a_controller_that_dies_ends_the_websocket_with_a_valid_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = re.search(rb"Sec-WebSocket-Key: (\S+)", head)
        assert key is not None
        accept = b64encode(sha1(key[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        await reader.read(1)
        writer.transport.abort()

    async with fleet(tmp_path) as f, answering(dies) as dying:
        await listed_as(monkeypatch, dying)
        async with f.http.ws_connect(f"{f.dispatch[0]}/v1/lives/L/stream") as socket:
            await socket.send_str('{"text": "one"}')
            message = await socket.receive(timeout=30)
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.GOING_AWAY)


async def test_streams_of_many_lives_are_spread_over_the_controllers(tmp_path: Path) -> None:
    async with fleet(tmp_path, infer=3) as f:
        passes = passing.Passing(f.replicas[0])

        await until_so(f.replicas[0].records.controllers.all, lambda all_: len(all_) == 3, "three controllers")
        of_many = [await passes.controllers(make_mocked_request("GET", "/v1/stream")) for _ in range(100)]
        assert len({urls[0] for urls in of_many}) == 3
        of_one = make_mocked_request("GET", "/v1/lives/L/stream", match_info={"live_id": "L"})
        of_one[CALLER] = OPEN
        assert len({(await passes.controllers(of_one))[0] for _ in range(10)}) == 1


async def test_watchers_of_one_tenant_take_no_connection_from_others(tmp_path: Path) -> None:
    """Each connection to a controller is for one of a caller, which the listener counts: no further limit may stand
    between, that all tenants would share."""
    async with fleet(tmp_path) as f:
        passes = passing.Passing(f.replicas[0])
        connector = passes._session(f.infer[0]).connector
        assert connector is not None and connector.limit == 0
        await passes.close()


async def test_a_replica_that_stops_ends_what_it_passes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends its clients elsewhere at once, instead of waiting for them and then breaking off."""
    monkeypatch.setattr(passing, "GONE_S", 0.05)
    stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
    settings = DispatchSettings(port=0, access="open")
    async with fleet(tmp_path) as f, open_context(f.address, settings) as context:
        await f.start_worker(Record(), "w1")
        await f.create("L")
        app = Replica(context).app()
        where = {"host": "127.0.0.1", "port": 0, "stop_s": 600.0}
        serving = asyncio.create_task(serve(app, say=url.set_result, stop=stop, **where))
        through = f"{await url}/v1/lives/L"
        async with f.http.ws_connect(f"{through}/stream") as socket, f.http.get(f"{through}/events") as events:
            assert (await events.content.readline()).startswith(b"event: ")
            stop.set()
            message = await socket.receive(timeout=30)
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.GOING_AWAY)
            async with asyncio.timeout(30):
                await events.content.read()  # To its end: a broken one would raise.
        await asyncio.wait_for(serving, 60)


async def test_a_cell_without_a_reachable_controller_does_not_flood_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(tmp_path) as f:
        await listed_as(monkeypatch, "http://127.0.0.1:1")
        with capture_logs() as logged:
            answers = [await pushed(f, "L", "one") for _ in range(5)]
        assert [(status, problem["code"]) for status, problem in answers] == [(503, "NOT_READY")] * 5
        async with f.http.get(f"{f.dispatch[0]}/metrics") as page:
            assert 'dhsched_passed_total{endpoint="push_text",status="503"} 5.0' in await page.text()
        assert len([line for line in logged if line["event"].startswith("no Infer-Controller accepts")]) == 1


async def test_keys_hold_for_what_is_passed_on() -> None:
    """Tenants, roles and revocations are the same as at the controller itself."""
    async with empty_server("valkey") as server, keyed(server.address) as k:
        await k.configure(await k.role("admin"))
        await k.api.workers(1, capacity=4)
        await k.announce()
        key = await k.key("app", tenant="acme")
        acme, other = bearer(await k.token(key)), await k.role("app", tenant="other")
        created = await k.ask("POST", "/v1/lives", acme, {"digital_id": "anna", "live_id": "L"})
        assert created[0] == 201, created
        target, text = "/v1/lives/L/text", {"text": "one"}
        assert (await k.ask("POST", target, acme, text))[0] == 200
        refused = {
            401: [{}, bearer("forged"), bearer(key)],
            403: [{**other, "X-Tenant": "acme"}, await k.role("reader")],
            404: [other],
        }
        for status, callers in refused.items():
            for shown in callers:
                assert (await k.ask("POST", target, shown, text))[0] == status, status
        assert (await k.ask("GET", "/v1/lives/L/events", other))[0] == 404
        async with k.api.client.ws_connect("/v1/lives/L/stream", headers=acme) as socket:
            await socket.send_str('{"text": "two"}')
            assert json.loads((await socket.receive(timeout=30)).data)[0]["seq"] == 2
            assert await k.ring.revoke(id_of(key))
            gate = k.infer_context.service.gate
            assert gate is not None
            await gate.ring.reread()
            assert (await socket.receive(timeout=60)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        assert (await k.ask("POST", target, acme, text))[0] == 401
