"""Calls over aiohttp, for everything that runs an event loop. The rules of a call are in calls.py."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import aiohttp
import msgspec
from yarl import URL

from dhsched.client.calls import CONNECT_S, REPLY_BYTES_MAX, TRY_S, Calls, NotAnswered, NotSent, Reply
from dhsched.client.credentials import Credentials, client_tls
from dhsched.errors import Unreachable

T = TypeVar("T")
NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError, NotAnswered)
CLOSE_S = 0.5  # A server that does not answer the close of a WebSocket for this long is dropped; it may be frozen.


async def open_socket(
    http: aiohttp.ClientSession, url: str | URL, *, within_s: float = TRY_S, **options: Any
) -> aiohttp.ClientWebSocketResponse:
    """Open a WebSocket, or raise one of NO_ANSWER. A server that does not answer the handshake within `within_s` is not
    waited for, nor is one that does not answer the close: aiohttp by itself waits for as long as the connection seems
    to be there. `options` are of ws_connect, but for its timeout."""
    timeout = aiohttp.ClientWSTimeout(ws_close=CLOSE_S)
    try:
        async with asyncio.timeout(within_s):
            socket: aiohttp.ClientWebSocketResponse = await http.ws_connect(url, timeout=timeout, **options)
            return socket
    except AssertionError as error:
        # aiohttp asserts that the connection is there when the answer is read; it may be lost in the same tick.
        raise aiohttp.ClientConnectionError("the connection was lost during the handshake") from error


class Replicas(Calls):
    """The replicas of one role, called over one session."""

    def __init__(
        self,
        role: str,
        urls: str | Sequence[str],
        http: aiohttp.ClientSession,
        credentials: Credentials,
        *,
        deadline_s: float = 30.0,
        try_s: float | None = None,
        once: bool = False,
    ) -> None:
        super().__init__(role, urls, Session(http), credentials, deadline_s=deadline_s, try_s=try_s, once=once)
        self.http = http

    async def read(self, kind: type[T], method: str, *path: str, **given: Any) -> T:
        """Send a call (`call` has the arguments) and return the answer as `kind`. An answer that cannot be read is no
        answer of a server of ours, so it raises Unreachable; what was asked for may have been done."""
        raw = await self.call(method, *path, **given)
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.DecodeError as error:
            message = f"{self.url} answered with something that is no {kind.__name__} ({error}); check the address"
            raise Unreachable(message, {self.url: str(error)}, unknown=method != "GET") from None


class Session:
    """A transport over an aiohttp session."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], *, total_s: float
    ) -> Reply:
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S)
        try:
            async with self._http.request(method, url, data=body, headers=headers, timeout=timeout) as response:
                return await read_reply(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent from error
        except NO_ANSWER as error:
            raise NotAnswered from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def read_reply(response: aiohttp.ClientResponse) -> Reply:
    """Return a reply with its whole body. Raise if that is longer than REPLY_BYTES_MAX: no server of ours sends it."""
    raw = bytearray()
    async for part in response.content.iter_any():
        raw += part
        if len(raw) > REPLY_BYTES_MAX:
            response.close()
            raise aiohttp.ClientPayloadError(f"the reply has more than {REPLY_BYTES_MAX} bytes")
    return Reply(response.status, response.headers, bytes(raw))


def open_session(
    urls: Sequence[str], ca: str, *, headers: Mapping[str, str] | None = None, connections_max: int = 100
) -> aiohttp.ClientSession:
    """Open a session to these servers, without a deadline of its own; `ca` is a PEM file to trust as well."""
    secure = bool(ca) or any(url.startswith("https:") for url in urls)  # Loading the authorities is slow.
    connector = aiohttp.TCPConnector(limit=connections_max, ssl=client_tls(ca) if secure else True)
    return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=None), connector=connector)
