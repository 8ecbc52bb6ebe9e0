"""The one HTTP caller: which replica is asked, what is repeated, and how a token is renewed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dhsched.client import blocking as blocking_module
from dhsched.client import http as http_module
from dhsched.client.blocking import Blocking, finish
from dhsched.client.calls import Calls
from dhsched.client.credentials import Credentials
from dhsched.client.http import NO_ANSWER, Replicas, open_socket
from dhsched.client.models.lives import Live, Placed
from dhsched.errors import KeyRefused, NotMinted, Refused, Unreachable

DEAD = "http://127.0.0.1:1"  # Nobody listens there, and only root could.
KEY = "dhk_0123456789ab_secret"


class Replica:
    """A server that mints tokens, knows those since the last rotation, and answers every call like `answer`."""

    def __init__(self, status: int = 200, **answer: Any) -> None:
        self.status, self.answer = status, answer
        self.open = True
        self.knows_key = True
        self.minted: list[Any] = []
        self.valid = ""
        self.asked = 0

    async def mint(self, request: web.Request) -> web.Response:
        self.minted.append(await request.json())
        if not self.knows_key:
            return web.json_response({"code": "UNAUTHORIZED", "detail": "unknown"}, status=401)
        self.valid = f"t{len(self.minted)}"
        return web.json_response({"token": self.valid, "expires_in_s": 900, "access": "keys", "new": 1})

    async def call(self, request: web.Request) -> web.Response:
        self.asked += 1
        if not self.open and request.headers.get("Authorization") != f"Bearer {self.valid}":
            return web.json_response({"code": "UNAUTHORIZED", "detail": "no valid token"}, status=401)
        return web.json_response(self.answer, status=self.status)


@asynccontextmanager
async def serving(*replicas: Replica) -> AsyncIterator[tuple[aiohttp.ClientSession, list[str]]]:
    async with AsyncExitStack() as stack:
        urls = []
        for each in replicas:
            app = web.Application()
            app.add_routes([web.post("/v1/tokens", each.mint), web.route("*", "/v1/{any:.*}", each.call)])
            server = await stack.enter_async_context(TestServer(app))
            urls.append(str(server.make_url("")).rstrip("/"))
        yield await stack.enter_async_context(aiohttp.ClientSession()), urls


async def test_calls_that_fail_together_do_not_push_each_other_back() -> None:
    """Each left the dead replica; together they must not come round to it again."""
    async with serving(Replica()) as (http, [url]):
        replicas = Replicas("Dispatch", [DEAD, url], http, Credentials(), deadline_s=60, once=True)
        answers = await asyncio.gather(*(replicas.call("GET", "lives") for _ in range(4)))
        assert answers == [b"{}"] * 4
        assert replicas.url == url


async def test_the_one_that_answered_is_asked_first() -> None:
    first, second = Replica(503, code="NOT_READY", detail="no store yet"), Replica()
    async with serving(first, second) as (http, urls):
        replicas = Replicas("Dispatch", urls, http, Credentials(), deadline_s=60)
        for _ in range(3):
            await replicas.call("GET", "lives")
    assert (first.asked, second.asked) == (1, 3)


async def test_a_token_that_is_void_is_renewed_once() -> None:
    replica = Replica()
    replica.open = False
    async with serving(replica) as (http, urls):
        replicas = Replicas("Dispatch", urls, http, Credentials(KEY), deadline_s=60)
        await replicas.call("GET", "lives")
        replica.valid = "of another secret"
        await replicas.call("POST", "keys", body={}, twice=False)
        assert (len(replica.minted), replica.asked) == (2, 3), "a refused token did nothing, so the call is repeated"
        replica.answer, replica.status, replica.open = {"code": "UNAUTHORIZED", "detail": "what you show"}, 401, True
        with pytest.raises(Refused, match="what you show"):
            await replicas.call("POST", "publishing", body={})
        assert (len(replica.minted), replica.asked) == (3, 5)
        replica.knows_key = False
        with pytest.raises(KeyRefused, match="mints no token for API key"):
            await replicas.call("GET", "lives")


async def test_without_a_key_a_401_is_asked_once() -> None:
    replica = Replica()
    replica.open = False
    async with serving(replica) as (http, urls):
        with pytest.raises(Refused, match="no valid token"):
            await Replicas("Dispatch", urls, http, Credentials(), deadline_s=60).call("GET", "lives")
    assert (replica.minted, replica.asked) == ([], 1)


async def test_when_none_serves_the_error_has_what_each_said() -> None:
    async with serving(Replica(503, code="BUSY", detail="too much to do")) as (http, [url]):
        replicas = Replicas("Dispatch", [url, DEAD], http, Credentials(), deadline_s=60, once=True)
        with pytest.raises(Unreachable) as lost:
            await replicas.call("GET", "lives")
    assert {*lost.value.troubles} == {url, DEAD} and not lost.value.unknown
    assert lost.value.refused is not None and lost.value.refused.code == "BUSY"


async def test_what_must_not_be_done_twice_goes_on_where_nothing_was_done() -> None:
    async with serving(Replica()) as (http, [url]):
        replicas = Replicas("Dispatch", [DEAD, url], http, Credentials(), deadline_s=60)
        assert await replicas.call("POST", "keys", body={}, twice=False) == b"{}"
    broken = Replica(500, code="INTERNAL", detail="a bug")
    async with serving(broken, Replica()) as (http, urls):
        with pytest.raises(Refused, match="a bug"):
            await Replicas("Dispatch", urls, http, Credentials(), deadline_s=60).call("POST", "keys", twice=False)
    assert broken.asked == 1


async def test_a_quota_that_passes_by_itself_is_tried_elsewhere_and_any_other_is_said() -> None:
    rate = Replica(429, code="QUOTA", detail="too many requests", quota="rate_per_s")
    lives = Replica(429, code="QUOTA", detail="too many lives", quota="lives_max")
    async with serving(rate, Replica()) as (http, urls):
        replicas = Replicas("Dispatch", urls, http, Credentials(), deadline_s=60)
        assert await replicas.call("POST", "lives", twice=False) == b"{}"
        assert rate.asked == 1
    async with serving(lives, Replica()) as (http, urls):
        replicas = Replicas("Dispatch", urls, http, Credentials(), deadline_s=60)
        with pytest.raises(Refused, match="too many lives"):
            await replicas.call("POST", "lives")


async def test_a_reply_without_end_is_no_answer_and_the_next_replica_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "REPLY_BYTES_MAX", 1_000)
    endless, right = Replica(filler="x" * 100_000), Replica(lives=[])
    async with serving(endless, right) as (http, urls):
        replicas = Replicas("Dispatch", urls, http, Credentials(), deadline_s=60, once=True)
        assert await replicas.call("GET", "lives") == b'{"lives": []}'
        assert endless.asked == 1 and replicas.url == urls[1]


async def test_a_server_that_mints_something_else_is_named() -> None:
    """Another program may have taken the address of a deployment whose key is still known."""

    class Stranger(Replica):
        async def mint(self, request: web.Request) -> web.Response:
            return web.Response(text="<html>", content_type="text/html")

    async with serving(Stranger()) as (http, urls):
        with pytest.raises(NotMinted, match=r"something else .* check that the address"):
            await Replicas("Dispatch", urls, http, Credentials(KEY), deadline_s=60).call("GET", "lives")


async def test_an_answer_that_is_no_document_is_named() -> None:
    class Stranger(Replica):
        async def call(self, request: web.Request) -> web.Response:
            return web.Response(text="<html>", content_type="text/html")

    async with serving(Stranger()) as (http, urls):
        replicas = Replicas("Dispatch", urls, http, Credentials(), deadline_s=60)
        with pytest.raises(Unreachable, match=r"no Live .* check the address") as found:
            await replicas.read(Live, "GET", "lives", "L")
        assert not found.value.unknown
        with pytest.raises(Unreachable) as made:
            await replicas.read(Placed, "POST", "lives", body={})
        assert made.value.unknown, "it may have been done"


async def test_without_an_event_loop_the_rules_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line blocks its thread until each answer is there."""

    def called(urls: list[str], *path: str, key: str = "", **given: Any) -> bytes:
        calls = Calls("Dispatch", urls, Blocking(""), Credentials(key), deadline_s=20, once=True)
        return finish(calls.call("POST", *path, body={"a": 1}, **given))

    async with serving(Replica(200, here=1)) as (_, [url]):
        assert await asyncio.to_thread(called, [DEAD, url], "lives", twice=False) == b'{"here": 1}'
    keyed = Replica(empty="")
    keyed.open = False
    async with serving(keyed) as (_, urls):
        assert await asyncio.to_thread(called, urls, "lives", key=KEY) == b'{"empty": ""}'
        with pytest.raises(Refused, match="no valid token"):
            await asyncio.to_thread(called, urls, "lives")
        assert (len(keyed.minted), keyed.asked) == (1, 2)
    monkeypatch.setattr(blocking_module, "REPLY_BYTES_MAX", 1_000)
    async with serving(Replica(filler="x" * 100_000), Replica(right=1)) as (_, urls):
        assert await asyncio.to_thread(called, urls, "lives") == b'{"right": 1}'
        with pytest.raises(Unreachable, match="whether it was done is not known") as lost:
            await asyncio.to_thread(called, urls[:1], "lives", twice=False)
        assert lost.value.unknown
    with pytest.raises(Unreachable, match="Connection refused") as lost:
        await asyncio.to_thread(called, [DEAD], "lives", twice=False)
    assert not lost.value.unknown


class Silent:
    """A session whose WebSockets are never answered, or whose connection is lost in the tick of the answer."""

    def __init__(self, *, lost: bool) -> None:
        self._lost = lost

    async def ws_connect(self, url: str, *, timeout: object) -> None:
        assert not self._lost  # As aiohttp does it.
        await asyncio.Event().wait()


@pytest.mark.parametrize("lost", [True, False])
async def test_a_handshake_that_comes_to_nothing_is_no_answer(lost: bool) -> None:
    with pytest.raises(NO_ANSWER):
        await open_socket(cast(aiohttp.ClientSession, Silent(lost=lost)), DEAD, within_s=0.01)


async def test_a_server_that_does_not_answer_the_close_of_a_socket_is_dropped() -> None:
    """A server that is frozen, or gone without a word, says nothing more; whoever closes goes on all the same."""
    leave = asyncio.Event()

    async def accept(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await leave.wait()  # It reads nothing, so it never sees the close.
        return socket

    app = web.Application()
    app.router.add_get("/", accept)
    async with TestServer(app) as server, aiohttp.ClientSession() as http:
        try:
            socket = await open_socket(http, server.make_url("/"))
            await asyncio.wait_for(socket.close(), 60.0)
            assert socket.closed and not leave.is_set()
        finally:
            leave.set()
