"""Calls over the standard library, for a verb of the command line, which has nothing to do while a call waits.

Loading aiohttp and asyncio takes longer than most verbs take. The rules of a call are in calls.py.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Coroutine, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import urlsplit

from dhsched.client.calls import CONNECT_S, REPLY_BYTES_MAX, NotAnswered, NotSent, Reply
from dhsched.client.credentials import client_tls

T = TypeVar("T")
PART_BYTES = 65_536  # Read at a time; the deadline is checked in between.


class Blocking:
    """A transport that blocks its thread until the answer is there. `ca` is a PEM file to trust as well."""

    def __init__(self, ca: str) -> None:
        self._ca = ca
        self._tls: ssl.SSLContext | None = None

    async def send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], *, total_s: float
    ) -> Reply:
        ends = time.monotonic() + total_s
        connection = self._connection(url, min(CONNECT_S, total_s))
        try:
            try:
                connection.connect()
            except OSError as error:
                raise NotSent from error
            sock = connection.sock  # The connection forgets its socket when the server says that it will close.
            sock.settimeout(_left(ends))
            sent = {name: value.encode() for name, value in headers.items()}
            connection.request(method, url[len(_origin(url)) :], body, sent)
            response = connection.getresponse()
            raw = bytearray()
            while not response.isclosed():
                sock.settimeout(_left(ends))
                raw += response.read(PART_BYTES)
                if len(raw) > REPLY_BYTES_MAX:
                    raise HTTPException(f"the reply has more than {REPLY_BYTES_MAX} bytes")
            return Reply(response.status, dict(response.headers), bytes(raw))
        except (OSError, HTTPException) as error:
            raise NotAnswered from error
        finally:
            connection.close()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251

    def _connection(self, url: str, timeout_s: float) -> HTTPConnection:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme != "https":
            return HTTPConnection(host, parts.port, timeout=timeout_s)
        if self._tls is None:
            self._tls = client_tls(self._ca)  # Loading the authorities is slow.
        return HTTPSConnection(host, parts.port, timeout=timeout_s, context=self._tls)


def finish(call: Coroutine[Any, Any, T]) -> T:
    """Run a call over `Blocking` to its end. Such a call never waits for an event loop, so none is needed."""
    try:
        call.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a blocking call has waited for an event loop")


def _left(ends: float) -> float:
    """Return the seconds until `ends`. Raise TimeoutError after it."""
    if (left := ends - time.monotonic()) <= 0:
        raise TimeoutError("no answer in time")
    return left


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
