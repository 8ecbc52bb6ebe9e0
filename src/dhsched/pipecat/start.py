"""The start service: `POST /start` and the offers of SmallWebRTC clients, as Pipecat's runner serves them.

    python -m dhsched.pipecat.start --bot anna --port 7860

`POST /start` creates a live. Its bots dial this service (`/bots`), each with its epoch. An offer goes to the generation
that is current by Dispatch's word, and its answer counts only if that generation is still current afterwards: an older
generation gets no offer, and no answer of it reaches a client. After a move or a crash the client sends an offer again,
to the same address, and hears the next generation.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import os
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
import structlog
from aiohttp import web

from dhsched.addresses import DISPATCH
from dhsched.client import Client, Refused, Unreachable
from dhsched.pipecat import signalling
from dhsched.pipecat.signalling import CANDIDATES_MAX, MESSAGE_BYTES_MAX, METADATA, Answered, Hello, Request
from dhsched.settings import is_loopback
from dhsched.web.running import listening, run_service

log = structlog.get_logger(__name__)

BODY_BYTES_MAX = 64 * 1024  # A longer request is refused with 413.
BOTS_MAX = 10_000  # Further bots are refused: their lives have no client here.
HELLO_S = 10.0  # A bot that says nothing for this long after it has connected is disconnected.
OFFER_S = 30.0  # An offer that no current generation has answered by then is refused with 503.
ANSWER_S = 10.0  # A bot that has not answered by then is asked again, or its successor is.
STOP_S = 2.0  # Requests that have not ended this long after SIGTERM are cut off.
SECRET = "DHSCHED_PIPECAT_SECRET"
"""The variable with the secret that signs the bots' proofs. Without it, sessions of an earlier process cannot be joined
any more."""
START_KEY = "DHSCHED_PIPECAT_START_KEY"
"""The variable with the key that POST /start needs; without it anybody who reaches the service may start bots."""
UNKNOWN = "Invalid or not-yet-ready session_id"
POLL_S = 0.2  # Time between two questions which generation is current, while its bot has not connected yet.


@dataclass(frozen=True, slots=True)
class StartOptions:
    """`bot` is the DigitalID of the lives, `urls` where bots reach the start services; `key` signs the proofs of
    bots, and is the same in all services. `start_key`, if given, must come with POST /start. `origins` may call from
    a browser."""

    bot: str
    urls: tuple[str, ...] = ()
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    start_key: str = field(default="", repr=False)
    origins: tuple[str, ...] = ()
    ice_servers: tuple[str, ...] = ()
    wait_s: float = 10.0
    idle_s: float | None = None


class Bot:
    """The connection of one generation's bot."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self._asked: dict[int, asyncio.Future[Answered]] = {}
        self._number = 0

    async def ask(self, asked: Request) -> Answered:
        self._number += 1
        asked.id = self._number
        answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._asked[asked.id] = answered
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._socket.send_bytes(msgspec.json.encode(asked))
                return await answered
        finally:
            del self._asked[asked.id]

    async def read(self) -> None:
        """Take the bot's answers until its connection ends; then fail the requests that still wait."""
        try:
            async for message in self._socket:
                said = msgspec.json.decode(message.data, type=Answered)
                if (waiting := self._asked.get(said.id)) is not None and not waiting.done():
                    waiting.set_result(said)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            log.warning("a bot's answer cannot be read", reason=str(error))
        finally:
            for each in self._asked.values():
                if not each.done():
                    each.set_exception(ConnectionResetError("the bot has gone"))

    async def close(self) -> None:
        await self._socket.close(code=signalling.SUPERSEDED, message=b"a later generation is current")


class StartService:
    """The service. `client` must be entered, with a key that may create lives."""

    def __init__(self, client: Client, options: StartOptions) -> None:
        self._client = client
        self._options = options
        self._bots: dict[str, dict[int, Bot]] = defaultdict(dict)
        self.own_url = ""  # Where bots reach this service, unless the options say so.

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._cors, refusals])
        app.router.add_get("/status", self._status)
        app.router.add_post("/start", self._start)
        app.router.add_post("/sessions/{live}/api/offer", self._offer)
        app.router.add_patch("/sessions/{live}/api/offer", self._candidates)
        app.router.add_get("/sessions/{live}", self._session)
        app.router.add_get("/bots", self._bot)
        app.router.add_route("OPTIONS", "/{path:.*}", self._preflight)
        return app

    # -- clients

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ready", "transports": ["webrtc"]})

    async def _start(self, request: web.Request) -> web.Response:
        """Create a live for the client; the `body` of the request is `live.body` for its bots."""
        options = self._options
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if options.start_key and not hmac.compare_digest(shown.encode(), options.start_key.encode()):
            raise web.HTTPUnauthorized(text="POST /start needs the start key of this service")
        asked = await read_object(request) if request.can_read_body else {}
        if (transport := asked.get("transport") or "webrtc") != "webrtc":
            raise web.HTTPBadRequest(text=f"Transport '{transport}' is not allowed. Only webrtc is served here.")
        live = f"pc-{secrets.token_hex(12)}"
        calling = {"live": live, "services": [*(options.urls or (self.own_url,))], "secret": self._secret(live)}
        idle: dict[str, Any] = {} if options.idle_s is None else {"idle_s": options.idle_s}
        metadata = {"body": asked.get("body") or {}, METADATA: calling}
        await self._client.create(options.bot, live_id=live, metadata=metadata, wait_s=options.wait_s, **idle)
        result: dict[str, Any] = {"sessionId": live}
        servers = options.ice_servers or (
            ("stun:stun.l.google.com:19302",) if asked.get("enableDefaultIceServers") else ()
        )
        if servers:
            result["iceConfig"] = {"iceServers": [{"urls": [url]} for url in servers]}
        return web.json_response(result)

    async def _session(self, request: web.Request) -> web.Response:
        """Say whether the session has ended: a bot that leaves tells its client whether to connect anew."""
        found = await self._client.get(request.match_info["live"])
        if found.digital_id != self._options.bot:
            raise web.HTTPNotFound(text=UNKNOWN)
        return web.json_response({"ended": found.state == "ended"})

    async def _offer(self, request: web.Request) -> web.Response:
        said = await read_object(request)
        sdp, pc_id = said.get("sdp"), said.get("pc_id")
        if said.get("type") != "offer" or not isinstance(sdp, str) or not isinstance(pc_id, str | None):
            raise web.HTTPBadRequest(text="Invalid WebRTC request")
        asked = Request(sdp=sdp, pc_id=pc_id, restart_pc=bool(said.get("restart_pc")))
        answered = await self._ask(request.match_info["live"], asked)
        if answered.answer is None:
            raise web.HTTPBadRequest(text=answered.error)
        return web.json_response(answered.answer)

    async def _candidates(self, request: web.Request) -> web.Response:
        said = await read_object(request)
        try:
            asked = msgspec.convert({"pc_id": said.get("pc_id"), "candidates": said.get("candidates", [])}, Request)
        except msgspec.ValidationError:
            raise web.HTTPBadRequest(text="Invalid WebRTC request") from None
        if len(asked.candidates) > CANDIDATES_MAX:
            raise web.HTTPBadRequest(text=f"more than {CANDIDATES_MAX} candidates in one request")
        if (answered := await self._ask(request.match_info["live"], asked)).error:
            raise web.HTTPNotFound(text=answered.error)
        return web.json_response({"status": "success"})

    # -- the current generation

    async def _ask(self, live: str, asked: Request) -> Answered:
        """Ask the bot of the current generation, and return its answer if that generation is still current."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + OFFER_S
        while loop.time() < give_up:
            epoch = await self._epoch(live)
            if (bot := self._bots.get(live, {}).get(epoch)) is not None:
                try:
                    answered = await bot.ask(asked)
                    if await self._epoch(live) == epoch:
                        return answered
                    continue
                except (TimeoutError, ConnectionError, aiohttp.ClientError) as error:
                    log.warning("a bot has not answered", live=live, epoch=epoch, reason=str(error))
            await asyncio.sleep(POLL_S)
        raise web.HTTPServiceUnavailable(text=f"no bot of session {live} has answered for {OFFER_S:g} s; try again")

    async def _epoch(self, live: str) -> int:
        found = await self._client.get(live)
        if found.state == "ended":
            raise web.HTTPNotFound(text="the session has ended")
        if found.digital_id != self._options.bot:
            raise web.HTTPNotFound(text=UNKNOWN)
        return found.epoch

    def _secret(self, live: str) -> str:
        return hmac.new(self._options.key, live.encode(), "sha256").hexdigest()

    # -- bots

    async def _bot(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=10, max_msg_size=MESSAGE_BYTES_MAX)
        await socket.prepare(request)
        try:
            async with asyncio.timeout(HELLO_S):
                hello = msgspec.json.decode(await socket.receive_bytes(), type=Hello)
        except (TimeoutError, TypeError, msgspec.MsgspecError):
            await socket.close(code=signalling.MALFORMED, message=b"a connection begins with hello")
            return socket
        known = hmac.compare_digest(hello.secret.encode(), self._secret(hello.live).encode())
        if not known or (hello.live not in self._bots and len(self._bots) >= BOTS_MAX):
            await socket.close(code=signalling.REFUSED, message=b"this generation is not served here")
            return socket
        bot, bots = Bot(socket), self._bots[hello.live]
        if any(epoch > hello.epoch for epoch in bots):
            await bot.close()
            return socket
        bots[hello.epoch] = bot
        try:
            for older in [epoch for epoch in bots if epoch < hello.epoch]:
                await bots.pop(older).close()
            await bot.read()
        finally:
            if bots.get(hello.epoch) is bot:
                del bots[hello.epoch]
            self._forget(hello.live)
        return socket

    def _forget(self, live: str) -> None:
        if not self._bots.get(live):
            self._bots.pop(live, None)

    # -- browsers

    async def _preflight(self, _: web.Request) -> web.Response:
        return web.Response()

    @web.middleware
    async def _cors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response = await handler(request)
        origin = request.headers.get("Origin", "")
        if origin and origin in self._options.origins and not response.prepared:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
            response.headers["Access-Control-Allow-Methods"] = "GET, POST, PATCH"
        return response


@web.middleware
async def refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn refusals into JSON answers, with Dispatch's own words for Dispatch's refusals."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.json_response({"detail": error.text}, status=error.status)
    except Refused as error:
        status = error.status if error.status in (404, 409, 422, 429) else 503
        return web.json_response({"detail": str(error), "code": error.code}, status=status)
    except Unreachable as error:
        return web.json_response({"detail": str(error)}, status=503)


async def read_object(request: web.Request) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await request.read(), type=dict[str, Any])
    except msgspec.MsgspecError:
        raise web.HTTPBadRequest(text="the body must be a JSON object") from None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dhsched.pipecat.start", description=__doc__.partition("\n")[0])
    parser.add_argument("--bot", required=True, help="DigitalID of the lives")
    parser.add_argument(
        "--dispatch",
        default=os.environ.get("DHSCHED_URL") or ",".join(DISPATCH),
        help="URLs of Dispatch replicas, separated by commas [env: DHSCHED_URL]",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on [default: 127.0.0.1]")
    parser.add_argument("--port", type=int, default=7860, help="port to listen on [default: 7860]")
    parser.add_argument("--url", default="", help="where bots reach this service and its replicas, separated by commas")
    parser.add_argument("--origin", action="append", default=[], help="origin of a page that may call from a browser")
    parser.add_argument("--ice-server", action="append", default=[], help="STUN or TURN server for clients")
    parser.add_argument("--idle-s", type=float, default=None, help="seconds without input after which a live ends")
    given = parser.parse_args()
    if not given.url and not is_loopback(given.host):
        parser.error(f"--host {given.host} needs --url: the address at which bots reach this service")
    run_service(lambda stop: serve(given, stop))


async def serve(given: argparse.Namespace, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    options = StartOptions(
        given.bot,
        urls=tuple(filter(None, given.url.split(","))),
        key=os.environ.get(SECRET, "").encode() or secrets.token_bytes(32),
        start_key=os.environ.get(START_KEY, ""),
        origins=tuple(given.origin),
        ice_servers=tuple(given.ice_server),
        idle_s=given.idle_s,
    )
    async with Client(given.dispatch.split(",")) as client:
        service = StartService(client, options)
        async with listening(service.app(), host=given.host, port=given.port, stop_s=STOP_S) as url:
            service.own_url = url
            print(f"starting {given.bot} at {url}/start", flush=True)
            await stop.wait()


if __name__ == "__main__":
    main()
