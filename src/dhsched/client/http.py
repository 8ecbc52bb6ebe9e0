"""The one HTTP caller: one call to its end, over the replicas, and never past its deadline.

The Python client, the command line and rooms all ask by it, and it alone knows these rules:

- The replica that answered last is asked first; one that does not answer, or answers that it cannot serve now, is left
  for the next. Each call goes through the replicas in an order of its own, so that calls which fail at the same time do
  not push each other back to a dead replica.
- A call is repeated until its deadline, with growing pauses, or (`once`) until each replica was asked. One that may not
  be done twice is repeated only where it surely was not done.
- An error document becomes `Refused`, no answer becomes `Unreachable`, and a key that gets no token `NotMinted`.
- An API key (credentials.py) mints a token at each replica, which is renewed before it ends. One that is refused is
  renewed once, at once: a secret may have been rotated since.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from dhsched.access.api_keys import id_of
from dhsched.access.minting import MINT_PATH, MintedToken
from dhsched.addresses import addresses
from dhsched.client.credentials import Credentials, client_tls
from dhsched.errors import KeyRefused, NotMinted, Refused, Unreachable

AGAIN = frozenset({"STORE_UNAVAILABLE", "BUSY", "NOT_READY", "INTERNAL", "STARTING", "RATE_LIMITED", "TIMEOUT"})
"""Refusals that pass by themselves. FULL is not one of them: `wait_s` of a create waits for a free slot, in line."""
UNTOUCHED = frozenset({"BUSY", "NOT_READY", "RATE_LIMITED", "TIMEOUT"})
"""Those of them that are given before anything is done."""
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0
TRY_S = 10.0  # One try at one replica, without what the call itself asks to wait. Then the next one is asked.
CONNECT_S = 5.0  # For a replica to take a connection. Then the next one is asked.
REPLY_BYTES_MAX = 64 * 1024 * 1024  # A page of the longest documents is far below; a longer reply is no answer.
MINT_S = 5.0  # For a replica to mint a token. Then the next one is asked.
RENEW = 0.75  # Of a token's life, after which there is a new one.
NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError)


class NotSent(Exception):
    """The replica has not been given the call: it was not there, or minted no token. `__cause__` says why."""


class Replicas:
    """The replicas of one role, and how they are asked."""

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
        """A call is given up at its deadline; with `once`, also when each replica has been asked."""
        self.urls = addresses(role, urls)
        self.role = role
        self.http = http
        self.deadline_s = deadline_s
        self._try_s = try_s
        self._once = once
        self._minters = {url: Minter(http, url, credentials) for url in self.urls}
        self._at = 0
        self._random = Random()

    def use(self, http: aiohttp.ClientSession) -> None:
        """Go on with another session, on another event loop perhaps: what was learnt and minted stays."""
        self.http = http
        for minter in self._minters.values():
            minter.http = http

    # -- which is asked next

    @property
    def url(self) -> str:
        """The replica to ask first."""
        return self.urls[self._at]

    def order(self) -> tuple[str, ...]:
        """All of them, the one to ask first at the front."""
        return self.urls[self._at :] + self.urls[: self._at]

    def leave(self, url: str) -> None:
        """This one does not answer: the one behind it is asked first, unless another call has left it already."""
        if self.url == url:
            self._at = (self._at + 1) % len(self.urls)

    def is_over(self, tries: int) -> bool:
        """Whether so many tries in a row are as many as there may be."""
        return self._once and tries >= len(self.urls)

    def backoff_s(self, tries: int) -> float:
        return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(tries, 10)) * self._random.uniform(0.5, 1.0)

    # -- what is shown to it

    def key(self, url: str) -> str:
        """The API key that mints our tokens there; empty without one."""
        return self._minters[url].key

    async def access(self, url: str) -> dict[str, str]:
        """The headers that show our token at this replica; none without a key. Raises NotMinted."""
        return await self._minters[url].headers()

    def forget(self, url: str) -> bool:
        """Our token was refused there. Whether there is a key to mint another one with."""
        return self._minters[url].forget()

    # -- calls

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
        try_s = (TRY_S if self._try_s is None else self._try_s) + wait_s
        order, tries, troubles = self.order(), 0, dict[str, str]()
        refusal: Refused | None = None
        while True:
            url = order[tries % len(order)]
            left = give_up - loop.time()
            pause_s = 0.0 if self._once else self.backoff_s(tries)
            tries += 1
            try:
                # One that is not repeated has all the time there is: giving up early would leave it in the dark.
                raw = await self._try(url, method, target, body, headers or {}, min(left, try_s) if twice else left)
            except (Refused, NotMinted) as refused:
                if refused.code not in (AGAIN if twice or isinstance(refused, NotMinted) else UNTOUCHED):
                    raise
                if isinstance(refused, Refused):
                    refusal = refused
                    pause_s = 0.0 if self._once else max(pause_s, refused.retry_after_s or 0.0)
                if self.is_over(tries) or loop.time() + pause_s >= give_up:
                    raise
                troubles[url], cause = str(refused), None
            except NotSent as error:
                troubles[url], cause = words(error.__cause__), error.__cause__
            except NO_ANSWER as error:
                troubles[url], cause = words(error), error
                if not twice:
                    raise Unreachable(
                        f"{url} did not answer {method} {target} ({words(error)}), and whether it was done is not "
                        "known: look, and repeat it if it was not",
                        troubles,
                        unknown=True,
                    ) from error
            else:
                self._at = self.urls.index(url)
                return raw
            self.leave(url)
            if self.is_over(tries) or loop.time() + pause_s >= give_up:
                raise Unreachable(
                    f"{method} {target}: no {self.role} answered within {self.deadline_s + wait_s:g} s "
                    f"({tries} tries, the last at {url}: {troubles[url]})",
                    troubles,
                    refused=refusal,
                ) from cause
            await asyncio.sleep(pause_s)

    async def _try(
        self, url: str, method: str, target: str, body: Any, headers: Mapping[str, str], timeout_s: float
    ) -> bytes:
        """One try at one replica; a second one with a new token where the first was refused."""
        timeout = aiohttp.ClientTimeout(total=max(0.01, timeout_s), sock_connect=CONNECT_S)
        sent = None if body is None else msgspec.json.encode(body)
        for renewed in (False, True):
            try:
                access = await self.access(url)
            except NO_ANSWER as error:
                raise NotSent from error
            said = {"Content-Type": "application/json", **access, **headers}
            try:
                response = await self.http.request(method, url + target, data=sent, headers=said, timeout=timeout)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                raise NotSent from error
            async with response:
                raw = await read_reply(response)
            if response.status < 400:
                return raw
            if not (response.status == 401 and self.forget(url) and not renewed):
                break
        raise refusal_of(response, raw)


class Minter:
    """Tokens of one API key at one server, each renewed before it ends."""

    def __init__(self, http: aiohttp.ClientSession, url: str, credentials: Credentials) -> None:
        self.http = http
        self._url = url.rstrip("/")
        self._credentials = credentials
        self.key = credentials.key(url)
        self._shown: dict[str, str] = {}
        self._until = 0.0  # By the monotonic clock; from then on a new token is minted first.

    def forget(self) -> bool:
        """Mint another token before the next call, with the key that is found then. Whether there is one."""
        self._until = 0.0
        self.key = self._credentials.key(self._url)
        return bool(self.key)

    async def headers(self) -> dict[str, str]:
        """What to send with a request; nothing without a key. Raises NotMinted."""
        if not self.key:
            return {}
        if time.monotonic() >= self._until:
            minted = await self._mint()
            self._shown = bearer(minted.token) if minted.token else {}
            self._until = time.monotonic() + RENEW * minted.expires_in_s
        return self._shown

    async def _mint(self) -> MintedToken:
        sent = msgspec.json.encode(self._credentials.asks)
        shown = {"Content-Type": "application/json", **bearer(self.key)}
        timeout = aiohttp.ClientTimeout(total=MINT_S)
        async with self.http.post(self._url + MINT_PATH, data=sent, headers=shown, timeout=timeout) as response:
            raw = await read_reply(response)
        if response.status != 200:
            refused = not_minted(self._url, self.key, refusal_of(response, raw))
            self.forget()
            raise refused
        return msgspec.json.decode(raw, type=MintedToken)


async def read_reply(response: aiohttp.ClientResponse) -> bytes:
    """The whole body of a reply. One of more than REPLY_BYTES_MAX counts as no answer: none of our servers sends it."""
    raw = bytearray()
    async for part in response.content.iter_any():
        raw += part
        if len(raw) > REPLY_BYTES_MAX:
            response.close()
            raise aiohttp.ClientPayloadError(f"it sent more than {REPLY_BYTES_MAX} bytes")
    return bytes(raw)


def open_session(
    urls: Sequence[str], ca: str, *, headers: Mapping[str, str] | None = None, connections_max: int = 100
) -> aiohttp.ClientSession:
    """A session to ask these servers with, without a deadline of its own; `ca` is a PEM file to trust, too."""
    secure = bool(ca) or any(url.startswith("https:") for url in urls)  # To load authorities takes a while.
    connector = aiohttp.TCPConnector(limit=connections_max, ssl=client_tls(ca) if secure else True)
    return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=None), connector=connector)


def target_of(*path: str, query: Mapping[str, Any] | None = None) -> str:
    """A target of the API. The words of `path` are quoted: a WorkerID has a `#`."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return "/v1/" + "/".join(quote(word, safe="") for word in path) + ("?" + urlencode(given) if given else "")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def words(error: BaseException | None) -> str:
    """What an error says; many say nothing but their name."""
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)


def refusal_of(response: aiohttp.ClientResponse, raw: bytes) -> Refused:
    """An error document as an exception."""
    status, retry_after = response.status, response.headers.get("Retry-After")
    after = float(retry_after) if retry_after and retry_after.isdecimal() else None
    with contextlib.suppress(msgspec.DecodeError):
        return Refused(status, msgspec.json.decode(raw, type=dict[str, Any]), after)
    # A load balancer without a replica behind it answers like this.
    code = "NOT_READY" if status in (502, 503, 504) else str(status)
    detail = f"the server answered {status} with something that is not a problem"
    return Refused(status, {"code": code, "detail": detail}, after)


def not_minted(url: str, key: str, refused: Refused) -> NotMinted:
    """What a server's refusal to mint means: about our key, or only about the server."""
    code, status = refused.code, refused.status
    kind = KeyRefused if code in ("UNAUTHORIZED", "FORBIDDEN", "401", "403") else NotMinted
    why = "check that the key is whole and has not been revoked" if status < 500 else "it may be able to later"
    return kind(f"{url} mints no token for our API key {id_of(key)} ({code}); {why}", code=code, status=status)
