"""One address: Dispatch passes requests for input and its events on to an Infer-Controller.

An application that knows only Dispatch can push text, by POST and by WebSocket, and follow the events of a live:

    POST /v1/lives/{live_id}/text       GET /v1/lives/{live_id}/stream, /v1/stream       GET /v1/lives/{live_id}/events

The Infer-Controller stays the boundary: it gets the caller's token, checks it, and its answers and problems come back
unchanged. Dispatch keeps nothing of what it passes on. Each direction is read only as fast as the other side takes it,
and when one side is gone the connection to the other is closed. Requests for one live go to the controller from which
its Worker pulls (links/preference.py), streams of many lives to any; a controller that accepts no connection is left
for the next. A connection to a controller is for one connection of a caller, which the listener has counted, so
there is no limit of their number that all callers would share.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import aiohttp
import structlog
from aiohttp import WSCloseCode, WSMsgType, web
from yarl import URL

from dhsched.client.calls import words
from dhsched.client.credentials import TLS_CA
from dhsched.client.http import NO_ANSWER, open_session, open_socket
from dhsched.dispatch.context import DispatchContext
from dhsched.errors import DhschedError
from dhsched.input_routes import PUSH_STREAM, PUSH_STREAMS, PUSH_TEXT, WATCH_LIVE
from dhsched.links.messages import FRAME_BYTES_MAX, PUSH_FRAME_BYTES_MAX
from dhsched.links.outbox import SEND_MAX_S
from dhsched.links.preference import in_order
from dhsched.tasks import cancel
from dhsched.web import Problem, body_in_time, caller_of, check_upgrade, upgrade
from dhsched.web.endpoints import BODY_BYTES_MAX, too_large
from dhsched.web.problems import problem_of
from dhsched.web.shares import Load

log = structlog.get_logger(__name__)

CONTROLLERS_S = 1.0  # The list of controllers is read again after this time.
CONNECT_S = 2.0  # A controller that accepts no connection for this long is left for the next.
HANDSHAKE_S = 5.0  # A controller that does not answer the request for a WebSocket for this long is left for the next.
ANSWER_S = 15.0  # A push that a controller does not answer for this long is answered STORE_UNAVAILABLE, unknown.
SILENCE_S = 30.0  # An event stream without a byte for this long is broken: controllers send at least every ten seconds.
GONE_S = 1.0  # How often an event stream checks whether its reader is gone, or this replica stops.
WARN_S = 10.0  # That no controller accepts a connection is logged at most this often, however many requests there are.
HEARTBEAT_S = 20.0  # A peer that answers no ping for this long is disconnected.
PUSHES_MAX = 512  # Pushes that wait for a controller's answer; past this, or past the caller's share of it, 503 BUSY.
FRAME_SLACK_BYTES = 65_536  # A frame this much above the limit still reaches the controller, which words the refusal.
PASSED = (
    "Authorization",
    "X-Tenant",
    "Content-Type",
    "Idempotency-Key",
    "Accept",
    "Last-Event-ID",
    "X-Request-Id",
    "traceparent",
)
"""Headers of a request that a controller gets."""
RETURNED = ("Content-Type", "Cache-Control", "Retry-After", "WWW-Authenticate", "X-Request-Id")
"""Headers of an answer that the caller gets."""


Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Passing:
    """The routes of one replica that are served by Infer-Controllers. `serving` returns the URLs of those that serve a
    live (`tenant/live_id`), or any live for None; without it they are those of the only cell."""

    def __init__(
        self, context: DispatchContext, serving: Callable[[str | None], Awaitable[list[str]]] | None = None
    ) -> None:
        self.context = context
        self._serving = serving or self._of_the_cell
        self._urls: list[str] = []
        self._read_at = float("-inf")
        self._pushes = Load(PUSHES_MAX)  # Beside those of the service: a frozen controller must not refuse creates.
        self._http: aiohttp.ClientSession | None = None
        self._stopping = asyncio.Event()
        self._warned_at = float("-inf")

    def routes(self) -> list[web.RouteDef]:
        served = (
            (PUSH_TEXT, self.push),
            (PUSH_STREAM, self.stream),
            (PUSH_STREAMS, self.stream),
            (WATCH_LIVE, self.events),
        )
        return [endpoint.raw_route(self._guarded(serve, endpoint.name)) for endpoint, serve in served]

    async def stop(self, _app: web.Application) -> None:
        """End every stream, so that its client goes to another replica."""
        self._stopping.set()

    async def close(self, _app: web.Application | None = None) -> None:
        if self._http is not None:
            await self._http.close()

    def _guarded(self, serve: Serve, name: str) -> Serve:
        """Return the handler, with errors before its answer made into problems, and each answer counted."""

        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                response = await serve(request)
            except DhschedError as error:
                response = problem_of(error).response()
            self.context.metrics.passed.labels(name, str(response.status)).inc()
            return response

        return answer

    # -- the three kinds of requests

    async def push(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on, and return its answer."""
        caller, pushes = caller_of(request), self._pushes
        pushes.fair = self.context.service.load.fair
        pushes.refuse(caller)
        body = await self._body(request)
        pushes.refuse(caller)
        pushes.begin(caller.tenant, caller.key)
        try:
            timeout = aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=CONNECT_S)
            async with self._answer(request, timeout, body) as response:
                try:
                    answer = await response.read()
                except NO_ANSWER as error:
                    raise unknown(error) from None
                return web.Response(status=response.status, headers=returned(response.headers), body=answer)
        finally:
            pushes.end(caller.tenant, caller.key)

    async def _body(self, request: web.Request) -> bytes:
        """Return the body. Raise TOO_LARGE and TIMEOUT, as for every request of the API."""
        if (request.content_length or 0) > BODY_BYTES_MAX:
            raise too_large(request.content_length or 0)
        try:
            return await body_in_time(request.read(), self.context.settings.body_s)
        except web.HTTPRequestEntityTooLarge:
            raise too_large(BODY_BYTES_MAX + 1) from None

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Pass an event stream on, for as long as both sides are there."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
        async with self._answer(request, timeout) as response:
            answer = web.StreamResponse(status=response.status, headers=returned(response.headers))
            with contextlib.suppress(*NO_ANSWER):
                await answer.prepare(request)
                async for chunk in chunks(request, response, self._stopping):
                    async with asyncio.timeout(SEND_MAX_S):
                        await answer.write(chunk)
            return answer

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Pass a WebSocket on: frames both ways, and the end of either side to the other."""
        check_upgrade(request)
        if isinstance(there := await self._connect(request), web.Response):
            return there
        async with there:
            here = await upgrade(
                request, heartbeat_s=HEARTBEAT_S, frame_bytes_max=PUSH_FRAME_BYTES_MAX + FRAME_SLACK_BYTES
            )
            if here is None:
                return web.Response(status=400)
            pumps = {asyncio.create_task(pump(here, there)), asyncio.create_task(pump(there, here))}
            stopping = asyncio.create_task(self._stopping.wait())
            try:
                await asyncio.wait({*pumps, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not stopping.done():
                    await asyncio.wait(pumps, timeout=HEARTBEAT_S if there.closed else GONE_S)
            finally:
                await cancel(*pumps, stopping)
            if not here.closed:
                await here.close(code=code_of(there))
            return here

    # -- controllers

    async def controllers(self, request: web.Request) -> list[str]:
        """Return the controllers to try for this request, in order. Raise NOT_READY if there are none."""
        live_id = request.match_info.get("live_id")
        live = None if live_id is None else f"{caller_of(request).tenant}/{live_id}"
        if not (urls := await self._serving(live)):
            raise Problem("NOT_READY", "no Infer-Controller is running, so no input is accepted; start one")
        if live is not None:
            return in_order(live, urls)
        first = random.randrange(len(urls))
        return urls[first:] + urls[:first]

    async def _of_the_cell(self, _live: str | None) -> list[str]:
        now = asyncio.get_running_loop().time()
        if now - self._read_at >= CONTROLLERS_S:
            self._urls = [each.url for each in await self.context.records.controllers.all()]
            self._read_at = now
        return self._urls

    @contextlib.asynccontextmanager
    async def _answer(
        self, request: web.Request, timeout: aiohttp.ClientTimeout, body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send the request to the first controller that accepts a connection, and yield its answer."""
        troubles = []
        for url in await self.controllers(request):
            target, headers = target_of(url, request), passed(request)
            sent = self._session(url).request(
                request.method, target, headers=headers, data=body, timeout=timeout, allow_redirects=False
            )
            try:
                response = await sent
            except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
                troubles.append(f"{url}: {words(error)}")
                continue
            except NO_ANSWER as error:
                raise unknown(error) from None
            async with response:
                yield response
            return
        raise self._unreached(troubles)

    async def _connect(self, request: web.Request) -> aiohttp.ClientWebSocketResponse | web.Response:
        """Open a WebSocket to the first controller that accepts a connection; or return the controller's refusal."""
        troubles = []
        for url in await self.controllers(request):
            target, headers = target_of(url, request), passed(request)
            try:
                options = {"max_msg_size": FRAME_BYTES_MAX, "heartbeat": HEARTBEAT_S}
                return await open_socket(self._session(url), target, within_s=HANDSHAKE_S, headers=headers, **options)
            except aiohttp.WSServerHandshakeError as refused:
                return await self._refusal(request, url, refused.status)
            except NO_ANSWER as error:
                troubles.append(f"{url}: {words(error)}")
        raise self._unreached(troubles)

    async def _refusal(self, request: web.Request, url: str, status: int) -> web.Response:
        """Return the problem of a refused WebSocket. The handshake has none, so repeat the request without it."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=CONNECT_S)
        with contextlib.suppress(*NO_ANSWER):
            async with self._session(url).get(
                target_of(url, request), headers=passed(request), timeout=timeout
            ) as response:
                if response.status == status:
                    body = await response.read()
                    return web.Response(status=status, headers=returned(response.headers), body=body)
        raise Problem("NOT_READY", f"the Infer-Controller refused the WebSocket with status {status}; try again")

    def _unreached(self, troubles: list[str]) -> Problem:
        now = asyncio.get_running_loop().time()
        if now - self._warned_at >= WARN_S:
            self._warned_at = now
            log.warning("no Infer-Controller accepts a connection", troubles=troubles)
        return Problem("NOT_READY", f"none of {len(troubles)} Infer-Controllers accepts a connection; try again")

    def _session(self, url: str) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = open_session([url], os.environ.get(TLS_CA, ""), connections_max=0)
        return self._http


def target_of(url: str, request: web.Request) -> URL:
    """Return the URL of the request at a controller. The path stays as it was sent: decoded, %2e%2e would become `..`,
    which leads to another path."""
    return URL(url.rstrip("/") + request.path_qs, encoded=True)


def passed(request: web.Request) -> dict[str, str]:
    return {name: request.headers[name] for name in PASSED if name in request.headers}


def returned(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in RETURNED if name in headers}


def unknown(error: BaseException) -> Problem:
    """Return the answer to a request whose outcome at the controller is unknown."""
    detail = f"the Infer-Controller did not answer ({words(error)}); repeat the call with the same id"
    return Problem("STORE_UNAVAILABLE", detail, unknown=True)


async def chunks(
    request: web.Request, response: aiohttp.ClientResponse, stopping: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield what comes from a controller until it ends, until the reader is gone, or until this replica stops."""
    while True:
        reading = asyncio.ensure_future(response.content.readany())
        try:
            while not reading.done():
                await asyncio.wait({reading}, timeout=GONE_S)
                if stopping.is_set() or request.transport is None or request.transport.is_closing():
                    return
            chunk = reading.result()
        finally:
            reading.cancel()
        if not chunk:
            return
        yield chunk


NEVER_SENT = (1005, 1006, 1015)
Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def pump(source: Socket, sink: Socket) -> None:
    """Pass frames on until the source ends, then close the sink with the same code. A send waits while its peer does
    not read, so at most one frame is in memory."""
    with contextlib.suppress(*NO_ANSWER):
        async for message in source:
            async with asyncio.timeout(SEND_MAX_S):
                if message.type is WSMsgType.TEXT:
                    await sink.send_str(message.data)
                elif message.type is WSMsgType.BINARY:
                    await sink.send_bytes(message.data)
        await sink.close(code=code_of(source))


def code_of(source: Socket) -> int:
    """Return the code with which to close the other side. Codes for lost connections are never sent."""
    code = source.close_code
    return WSCloseCode.GOING_AWAY if code is None or code in NEVER_SENT else code
