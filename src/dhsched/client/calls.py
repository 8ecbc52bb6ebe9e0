"""One call of the client to its end: over the replicas, again while that may help, and never past its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from dhsched.access.minting import Minter, find_key
from dhsched.addresses import addresses
from dhsched.errors import DhschedError, NotMinted

AGAIN = frozenset({"STORE_UNAVAILABLE", "BUSY", "NOT_READY", "INTERNAL", "STARTING", "RATE_LIMITED", "TIMEOUT"})
"""Refusals that pass by themselves. FULL is not one of them: `wait_s` of a create waits for room, in line."""
UNTOUCHED = frozenset({"BUSY", "NOT_READY", "RATE_LIMITED", "TIMEOUT"})
"""Those of them that are given before anything is done."""
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0
TRY_S = 10.0  # One try at one replica, without what the call itself asks to wait.
CONNECT_S = 5.0  # For a replica to take a connection.


class Refused(DhschedError):
    """The server's answer is no. `code` is stable; `problem` has the numbers."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.code = str(problem.get("code", status))
        self.problem = dict(problem)
        self.retry_after_s = retry_after_s
        super().__init__(f"{problem.get('detail') or f'the server answered {status}'} ({self.code})")


class Unreachable(DhschedError):
    """No replica answered in time. Whether the call was done is not known: its id makes a repetition safe.

    `troubles` has what was wrong at each replica that was asked. `unknown` is true when the call may not be repeated
    and may have been done.
    """

    def __init__(self, message: str, troubles: Mapping[str, str] | None = None, *, unknown: bool = False) -> None:
        super().__init__(message)
        self.troubles = dict(troubles or {})
        self.unknown = unknown


class NotSent(Exception):
    """The replica has not been given the call: it was not there, or minted no token. `__cause__` says why."""


class Replicas:
    """The replicas of one role. The one that answered last is asked first."""

    def __init__(
        self,
        role: str,
        urls: str | Sequence[str],
        http: aiohttp.ClientSession,
        deadline_s: float,
        key: str | None = "",
        *,
        rounds: int | None = None,
    ) -> None:
        """`key` is an API key that mints tokens where they are needed; None looks for one, as the command line does.

        A call is given up at its deadline; with `rounds`, also once each replica has been asked so many times.
        """
        self.urls = addresses(role, urls)
        self.role = role
        self.http = http
        self.deadline_s = deadline_s
        self._minters = {
            url: Minter(http, url, find=partial(find_key, url)) if key is None else Minter(http, url, key)
            for url in self.urls
        }
        self._tries_max = None if rounds is None else rounds * len(self.urls)
        self._at = 0
        self._random = Random()

    def use(self, http: aiohttp.ClientSession) -> None:
        """Go on with another session, on another event loop perhaps: what was learnt and minted stays."""
        self.http = http
        for minter in self._minters.values():
            minter.use(http)

    @property
    def url(self) -> str:
        """Where to go now."""
        return self.urls[self._at]

    @property
    def key(self) -> str:
        """What mints our tokens there; empty without one."""
        return self._minters[self.url].key

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
        twice: bool = True,
    ) -> bytes:
        """The answer's body. `twice`: the call may be done twice, because it has an id or changes nothing the second
        time. One that may not is repeated only where it surely was not done."""
        target = target_of(*path, query=query)
        return await self.ask(method, target, body=body, headers=headers, wait_s=wait_s, twice=twice)

    async def ask(
        self,
        method: str,
        target: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
        twice: bool = True,
    ) -> bytes:
        """The same for any target, also one outside the API."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.deadline_s + wait_s
        tries, troubles = 0, dict[str, str]()
        while True:
            left = give_up - loop.time()
            pause_s = self.backoff_s(tries)
            tries += 1
            try:
                # One that is not repeated has all the time there is: giving up early would leave it in the dark.
                return await self._once(
                    method, target, body, headers or {}, min(left, TRY_S + wait_s) if twice else left
                )
            except (Refused, NotMinted) as refused:
                if refused.code not in (AGAIN if twice or isinstance(refused, NotMinted) else UNTOUCHED):
                    raise
                if isinstance(refused, Refused) and self._tries_max is None:
                    pause_s = max(pause_s, refused.retry_after_s or 0.0)
                if self.over(tries) or loop.time() + pause_s >= give_up:
                    raise
                troubles[self.url] = str(refused)
            except NotSent as error:
                troubles[self.url] = words(error.__cause__)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                troubles[self.url] = words(error)
                if not twice:
                    raise Unreachable(
                        f"{self.url} did not answer {method} {target} ({words(error)}), and whether it was done is not "
                        "known: look, and repeat it if it was not",
                        troubles,
                        unknown=True,
                    ) from error
            last = f"{self.url}: {troubles[self.url]}"
            self.next()
            if self.over(tries) or loop.time() + pause_s >= give_up:
                raise Unreachable(
                    f"{method} {target}: no {self.role} answered within {self.deadline_s + wait_s:g} s "
                    f"({tries} tries, the last at {last})",
                    troubles,
                )
            await asyncio.sleep(pause_s)

    def over(self, tries: int) -> bool:
        """Whether so many tries in a row are as many as there may be."""
        return self._tries_max is not None and tries >= self._tries_max

    def backoff_s(self, tries: int) -> float:
        return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(tries, 10)) * self._random.uniform(0.5, 1.0)

    async def _once(self, method: str, target: str, body: Any, headers: Mapping[str, str], timeout_s: float) -> bytes:
        timeout = aiohttp.ClientTimeout(total=max(0.01, timeout_s), sock_connect=CONNECT_S)
        sent = None if body is None else msgspec.json.encode(body)
        try:
            access = await self.access()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotSent from error
        said = {"Content-Type": "application/json", **access, **headers}
        try:
            response = await self.http.request(method, self.url + target, data=sent, headers=said, timeout=timeout)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent from error
        async with response:
            raw = await response.read()
            if response.status == 401:
                self._minters[self.url].forget()
            if response.status >= 400:
                raise refusal(response.status, raw, response.headers.get("Retry-After"))
            return raw


def target_of(*path: str, query: Mapping[str, Any] | None = None) -> str:
    """A target of the API. The words of `path` are quoted: a WorkerID has a `#`."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return "/v1/" + "/".join(quote(word, safe="") for word in path) + ("?" + urlencode(given) if given else "")


def words(error: BaseException | None) -> str:
    """What an error says; many say nothing but their name."""
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)


def refusal(status: int, raw: bytes, retry_after: str | None) -> Refused:
    try:
        problem = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        # A load balancer without a replica behind it answers like this.
        code = "NOT_READY" if status in (502, 503, 504) else str(status)
        problem = {"code": code, "detail": f"the server answered {status} with something that is not a problem"}
    after = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return Refused(status, problem, after)
