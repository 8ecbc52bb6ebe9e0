"""One call of the client to its end: over the replicas, again while that may help, and never past its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import msgspec

from dhsched.access.minting import Minter, find_key
from dhsched.errors import BadAddress, DhschedError

AGAIN = frozenset({"STORE_UNAVAILABLE", "BUSY", "NOT_READY", "INTERNAL", "STARTING", "RATE_LIMITED", "TIMEOUT"})
"""Refusals that pass by themselves. FULL is not one of them: `wait_s` of a create waits for room, in line."""
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0
TRY_S = 10.0  # One try at one replica, without what the call itself asks to wait.


class Refused(DhschedError):
    """The server's answer is no. `code` is stable; `problem` has the numbers."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.code = str(problem.get("code", status))
        self.problem = dict(problem)
        self.retry_after_s = retry_after_s
        super().__init__(f"{problem.get('detail') or f'the server answered {status}'} ({self.code})")


class Unreachable(DhschedError):
    """No replica answered in time. Whether the call was done is not known: its id makes a repetition safe."""


class Replicas:
    """The replicas of one role. The one that answered last is asked first."""

    def __init__(
        self, role: str, urls: str | Sequence[str], http: aiohttp.ClientSession, deadline_s: float, key: str | None = ""
    ) -> None:
        """`key` is an API key that mints tokens where they are needed; None looks for one, as the command line does."""
        given = [urls] if isinstance(urls, str) else list(urls)
        self.urls = [url.strip().rstrip("/") for each in given for url in each.split(",") if url.strip()]
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise BadAddress(f"{role} address {url!r} must look like http://127.0.0.1:7400")
        if not self.urls:
            raise BadAddress(f"no address of {role} was given")
        self.role = role
        self._minters = {
            url: Minter(http, url, find=partial(find_key, url)) if key is None else Minter(http, url, key)
            for url in self.urls
        }
        self._http = http
        self._deadline_s = deadline_s
        self._at = 0
        self._random = Random()

    @property
    def url(self) -> str:
        """Where to go now."""
        return self.urls[self._at]

    def next(self) -> None:
        """This one does not answer: go to another one."""
        self._at = (self._at + 1) % len(self.urls)

    async def access(self) -> dict[str, str]:
        """The headers that show our token at the current replica; none without a key."""
        return await self._minters[self.url].headers()

    async def call(
        self,
        method: str,
        *path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
    ) -> bytes:
        """The answer's body. The call must be one that may be done twice: everything here is."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._deadline_s + wait_s
        target = "/v1/" + "/".join(quote(word, safe="") for word in path)
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            target += "?" + urlencode(given)
        tries, trouble = 0, ""
        while True:
            left = give_up - loop.time()
            pause_s = self.backoff_s(tries)
            try:
                return await self._once(method, target, body, headers or {}, min(left, TRY_S + wait_s))
            except Refused as refused:
                if refused.code not in AGAIN:
                    raise
                pause_s = max(pause_s, refused.retry_after_s or 0.0)
                if loop.time() + pause_s >= give_up:
                    raise
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                trouble = f"{self.url}: {error or type(error).__name__}"
            self.next()
            tries += 1
            if loop.time() + pause_s >= give_up:
                raise Unreachable(
                    f"{method} {target}: no {self.role} answered within {self._deadline_s + wait_s:g} s "
                    f"({tries} tries, the last at {trouble})"
                )
            await asyncio.sleep(pause_s)

    def backoff_s(self, tries: int) -> float:
        return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(tries, 10)) * self._random.uniform(0.5, 1.0)

    async def _once(self, method: str, target: str, body: Any, headers: Mapping[str, str], timeout_s: float) -> bytes:
        timeout = aiohttp.ClientTimeout(total=max(0.01, timeout_s))
        sent = None if body is None else msgspec.json.encode(body)
        said = {"Content-Type": "application/json", **await self.access(), **headers}
        async with self._http.request(method, self.url + target, data=sent, headers=said, timeout=timeout) as response:
            raw = await response.read()
            if response.status == 401:
                self._minters[self.url].forget()
            if response.status >= 400:
                raise refusal(response.status, raw, response.headers.get("Retry-After"))
            return raw


def refusal(status: int, raw: bytes, retry_after: str | None) -> Refused:
    try:
        problem = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        # A load balancer without a replica behind it answers like this.
        code = "NOT_READY" if status in (502, 503, 504) else str(status)
        problem = {"code": code, "detail": f"the server answered {status} with something that is not a problem"}
    after = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return Refused(status, problem, after)
