"""The rules of one call: over the replicas, to its end, and never past its deadline.

The Python client, rooms and Workers send with aiohttp (http.py); the command line sends with the standard library
(blocking.py), because loading aiohttp takes longer than a verb does. Both call through this module, and it alone knows
these rules:

- The replica that answered last is asked first; a replica that does not answer, or answers that it cannot serve now, is
  left for the next. Each call goes through the replicas in an order of its own, so that calls which fail at the same
  time do not push each other back to a dead replica.
- A call is repeated until its deadline, with growing pauses, or (`once`) until each replica was asked. A call that may
  not be done twice is repeated only if it surely was not done.
- An error document becomes `Refused`, no answer becomes `Unreachable`, and a key that gets no token `NotMinted`.
- An API key (credentials.py) mints a token at each replica, which is renewed before it ends. A token that is refused is
  renewed once, at once: a secret may have been rotated since.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

import msgspec

from dhsched.access.api_keys import id_of
from dhsched.access.minting import MINT_PATH, MintedToken
from dhsched.addresses import addresses
from dhsched.client.credentials import Credentials
from dhsched.errors import KeyRefused, NotMinted, Refused, Unreachable

AGAIN = frozenset({"STORE_UNAVAILABLE", "BUSY", "NOT_READY", "INTERNAL", "STARTING", "RATE_LIMITED", "TIMEOUT"})
"""Refusals worth repeating. FULL is not among them: `wait_s` of a create waits for a free slot in the queue."""
UNTOUCHED = frozenset({"BUSY", "NOT_READY", "RATE_LIMITED", "TIMEOUT"})
"""The codes of AGAIN that a server answers before it has done anything."""
NOTHING_DONE = UNTOUCHED | {"STARTING"}
"""The codes of AGAIN after which the call was surely not done."""
BACKOFF_FIRST_S = 0.05  # Pause after the first failed try; doubled after each, up to:
BACKOFF_MAX_S = 2.0
TRY_S = 10.0  # A replica that does not answer for this long (plus the call's `wait_s`) is left for the next.
CONNECT_S = 5.0  # A replica that does not accept a connection for this long is left for the next.
REPLY_BYTES_MAX = 64 * 1024 * 1024  # A longer reply counts as no answer; the longest page is far shorter.
MINT_S = 5.0  # A replica that mints no token for this long is left for the next.
RENEW = 0.75  # Share of a token's life after which a new token is minted.


class NotAnswered(Exception):
    """No answer came back, and whether the call was done is not known. `__cause__` says why."""


class NotSent(NotAnswered):
    """The call was not sent: the replica was not reached, or minted no token. `__cause__` says why."""


class Reply(NamedTuple):
    """An answer of a server, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """How requests are sent: one request at a time, to one server."""

    async def send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], *, total_s: float
    ) -> Reply:
        """Send a request and return the answer. Raise NotSent after CONNECT_S without a connection, and NotAnswered
        after `total_s` without an answer."""

    async def sleep(self, seconds: float) -> None:
        """Wait before the next try."""


class Calls:
    """The replicas of one role, and the rules for calling them."""

    def __init__(
        self,
        role: str,
        urls: str | Sequence[str],
        transport: Transport,
        credentials: Credentials,
        *,
        deadline_s: float = 30.0,
        try_s: float | None = None,
        once: bool = False,
    ) -> None:
        """Give up a call at its deadline; with `once`, also when each replica has been asked."""
        self.urls = addresses(role, urls)
        self.role = role
        self.deadline_s = deadline_s
        self._transport = transport
        self._try_s = try_s
        self._once = once
        self._minters = {url: Minter(transport, url, credentials) for url in self.urls}
        self._at = 0
        self._random = Random()

    # -- the order of replicas

    @property
    def url(self) -> str:
        """Return the replica to ask first."""
        return self.urls[self._at]

    def order(self) -> tuple[str, ...]:
        """Return all replicas, the one to ask first at the front."""
        return self.urls[self._at :] + self.urls[: self._at]

    def leave(self, url: str) -> None:
        """Ask the next replica first from now on, unless another call has already left this one."""
        if self.url == url:
            self._at = (self._at + 1) % len(self.urls)

    def is_over(self, tries: int) -> bool:
        """Return whether this many tries in a row use up the limit. Without `once` there is no limit."""
        return self._once and tries >= len(self.urls)

    def backoff_s(self, tries: int) -> float:
        return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(tries, 10)) * self._random.uniform(0.5, 1.0)

    # -- tokens

    def key(self, url: str) -> str:
        """Return the API key that mints tokens at this replica; empty without one."""
        return self._minters[url].key

    async def access(self, url: str) -> dict[str, str]:
        """Return the headers that carry a token for this replica; none without a key. Raise NotMinted."""
        return await self._minters[url].headers()

    def forget(self, url: str) -> bool:
        """Drop the token that this replica refused. Return whether there is a key that can mint another token."""
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
        is_final: Callable[[Refused], bool] | None = None,
    ) -> bytes:
        """Send a call and return the answer's body. `twice` is for a call that may be done twice, because it has an
        id or changes nothing the second time; any other call is repeated only if it surely was not done. A refusal that
        `is_final` is raised at once, whatever its code."""
        target = target_of(*path, query=query)
        return await self.ask(method, target, body=body, headers=headers, wait_s=wait_s, twice=twice, is_final=is_final)

    async def ask(
        self,
        method: str,
        target: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
        twice: bool = True,
        is_final: Callable[[Refused], bool] | None = None,
    ) -> bytes:
        """Send a call like `call` to any target, also one outside the API."""
        give_up = time.monotonic() + self.deadline_s + wait_s
        try_s = (TRY_S if self._try_s is None else self._try_s) + wait_s
        order, tries, troubles = self.order(), 0, dict[str, str]()
        refusal: Refused | None = None
        unknown = False  # Whether an earlier try may have been done.
        while True:
            url = order[tries % len(order)]
            left = give_up - time.monotonic()
            pause_s = 0.0 if self._once else self.backoff_s(tries)
            tries += 1
            try:
                # A call that is not repeated gets all the time that is left: after a timeout its outcome is unknown.
                raw = await self._try(url, method, target, body, headers or {}, min(left, try_s) if twice else left)
            except (Refused, NotMinted) as refused:
                if isinstance(refused, Refused):
                    refused.unknown = unknown
                    unknown = unknown or refused.code not in NOTHING_DONE
                    if is_final is not None and is_final(refused):
                        raise
                again = AGAIN if twice or isinstance(refused, NotMinted) else UNTOUCHED
                if refused.code not in again and not is_over_rate(refused):
                    raise
                if isinstance(refused, Refused):
                    refusal = refused
                    pause_s = 0.0 if self._once else max(pause_s, refused.retry_after_s or 0.0)
                if self.is_over(tries) or time.monotonic() + pause_s >= give_up:
                    raise
                troubles[url], cause = str(refused), None
            except NotSent as error:
                troubles[url], cause = words(error), error.__cause__
            except NotAnswered as error:
                troubles[url], cause, unknown = words(error), error.__cause__, True
                if not twice:
                    raise Unreachable(
                        f"{url} did not answer {method} {target} ({troubles[url]}), and whether it was done is not "
                        "known: check, and repeat the call if it was not",
                        troubles,
                        unknown=True,
                    ) from cause
            else:
                self._at = self.urls.index(url)
                return raw
            self.leave(url)
            if self.is_over(tries) or time.monotonic() + pause_s >= give_up:
                raise Unreachable(
                    f"{method} {target}: no {self.role} answered within {self.deadline_s + wait_s:g} s "
                    f"({tries} tries, the last at {url}: {troubles[url]})",
                    troubles,
                    refused=refusal,
                ) from cause
            await self._transport.sleep(pause_s)

    async def _try(
        self, url: str, method: str, target: str, body: Any, headers: Mapping[str, str], timeout_s: float
    ) -> bytes:
        """Send the call to one replica, and once more with a new token if the first token was refused."""
        sent = None if body is None else msgspec.json.encode(body)
        for renewed in (False, True):
            try:
                access = await self.access(url)
            except NotAnswered as error:
                raise NotSent from error.__cause__
            said = {"Content-Type": "application/json", **access, **headers}
            reply = await self._transport.send(method, url + target, sent, said, total_s=max(0.01, timeout_s))
            if reply.status < 400:
                return reply.body
            if not (reply.status == 401 and self.forget(url) and not renewed):
                break
        raise refusal_of(reply)


def is_over_rate(refused: Refused | NotMinted) -> bool:
    """Return whether the tenant made too many requests: unlike its other limits, this one passes by itself."""
    return isinstance(refused, Refused) and refused.problem.get("quota") == "rate_per_s"


class Minter:
    """Mint the tokens of one API key at one server, and renew each before it ends."""

    def __init__(self, transport: Transport, url: str, credentials: Credentials) -> None:
        self._transport = transport
        self._url = url.rstrip("/")
        self._credentials = credentials
        self.key = credentials.key(url)
        self._shown: dict[str, str] = {}
        self._until = 0.0  # Monotonic time from which the next call mints a new token.

    def forget(self) -> bool:
        """Search the key anew, and mint a token before the next call. Return whether a key was found."""
        self._until = 0.0
        self.key = self._credentials.key(self._url)
        return bool(self.key)

    async def headers(self) -> dict[str, str]:
        """Return the headers to send with a request; none without a key. Raise NotMinted."""
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
        reply = await self._transport.send("POST", self._url + MINT_PATH, sent, shown, total_s=MINT_S)
        if reply.status != 200:
            refused = not_minted(self._url, self.key, refusal_of(reply))
            self.forget()
            raise refused
        try:
            return msgspec.json.decode(reply.body, type=MintedToken)
        except msgspec.DecodeError as error:
            raise NotMinted(
                f"{self._url} answered a request for a token with something else ({error}); check that the address is "
                "Dispatch or an Infer-Controller",
                code="BAD_REPLY",
                status=200,
            ) from None


def target_of(*path: str, query: Mapping[str, Any] | None = None) -> str:
    """Return a target of the API. The parts of `path` are quoted: a WorkerID has a `#`."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return "/v1/" + "/".join(quote(word, safe="") for word in path) + ("?" + urlencode(given) if given else "")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def words(error: BaseException | None) -> str:
    """Return an error's message, or its type if the message is empty. NotAnswered speaks of its cause."""
    if isinstance(error, NotAnswered):
        error = error.__cause__
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)


def refusal_of(reply: Reply) -> Refused:
    """Return a server's error document as an exception."""
    status, retry_after = reply.status, reply.headers.get("Retry-After")
    after = float(retry_after) if retry_after and retry_after.isdecimal() else None
    with contextlib.suppress(msgspec.DecodeError):
        return Refused(status, msgspec.json.decode(reply.body, type=dict[str, Any]), after)
    # A load balancer without a replica behind it sends no error document.
    code = "NOT_READY" if status in (502, 503, 504) else str(status)
    detail = f"the server answered {status} with a body that is not a problem document"
    return Refused(status, {"code": code, "detail": detail}, after)


def not_minted(url: str, key: str, refused: Refused) -> NotMinted:
    """Return the error for a refused mint: KeyRefused if the key is at fault, else NotMinted."""
    code, status = refused.code, refused.status
    kind = KeyRefused if code in ("UNAUTHORIZED", "FORBIDDEN", "401", "403") else NotMinted
    why = "check that the key is whole and has not been revoked" if status < 500 else "try again later"
    return kind(f"{url} mints no token for API key {id_of(key)} ({code}); {why}", code=code, status=status)
