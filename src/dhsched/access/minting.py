"""The caller's side: an API key, and the token that it minted, for as long as it lasts.

Where a key is found, first to last: what was given, DHSCHED_KEY, the file that DHSCHED_KEY_FILE names, and what is in
the key file for the server's address (development.py). A Worker or a room is given its own in its settings; without
one, the last place is left to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dhsched.access.api_keys import id_of
from dhsched.access.key_file import KeyFile
from dhsched.errors import BadSetting, KeyRefused, NotMinted

if TYPE_CHECKING:
    import aiohttp

KEY = "DHSCHED_KEY"
KEY_FILE = "DHSCHED_KEY_FILE"
TENANT = "DHSCHED_TENANT"
TLS_CA = "DHSCHED_TLS_CA"
MINT_PATH = "/v1/tokens"
MINT_S = 5.0
RENEW = 0.75  # Of a token's life, after which there is a new one.


class Minted:
    """A key and its current token, if it has one that lasts. A key that is not `given` is looked for with `find`."""

    def __init__(self, given: str = "", find: Callable[[], str] = str) -> None:
        self._given, self._find = given, find
        self.key = given or find()
        self._token = ""
        self._until = 0.0

    def headers(self) -> dict[str, str] | None:
        """What to send, or None when a token must be minted first."""
        if not self.key:
            return {}
        if time.monotonic() >= self._until:
            return None
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def take(self, answer: Mapping[str, Any]) -> dict[str, str]:
        """The answer of POST /v1/tokens."""
        self._token = str(answer["token"])
        self._until = time.monotonic() + RENEW * float(answer["expires_in_s"])
        return self.headers() or {}

    def forget(self) -> None:
        """It was refused: mint another token before the next call, with the key that is found then."""
        self._until = 0.0
        self.key = self._given or self._find()


class Minter:
    """Tokens of one key at one server, for clients on an event loop. `asks` narrows what they allow."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        key: str = "",
        *,
        find: Callable[[], str] = str,
        asks: Mapping[str, str] | None = None,
    ) -> None:
        self._http = http
        self._url = url.rstrip("/")
        self._minted = Minted(key, find)
        self._asks = dict(asks or {})

    @property
    def key(self) -> str:
        return self._minted.key

    def use(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    def forget(self) -> None:
        self._minted.forget()

    async def headers(self) -> dict[str, str]:
        """What to send with a request. Raises DhschedError when the key is refused."""
        import aiohttp  # Late: it takes longer to load than most commands to run.

        ready = self._minted.headers()
        if ready is not None:
            return ready
        shown = {"Authorization": f"Bearer {self._minted.key}"}
        timeout = aiohttp.ClientTimeout(total=MINT_S)
        async with self._http.post(self._url + MINT_PATH, json=self._asks, headers=shown, timeout=timeout) as response:
            raw = await response.read()
            if response.status != 200:
                refused = not_minted(self._url, self._minted.key, response.status, raw)
                self.forget()
                raise refused
            return self._minted.take(json.loads(raw))


def own_minter(http: aiohttp.ClientSession, url: str, key: str, **asks: str) -> Minter:
    """Of a Worker or a room. Without a key of its own it uses the development key, for no more than `asks`."""
    if key:
        return Minter(http, url, key)
    return Minter(http, url, find=lambda: KeyFile().get(url), asks=asks)


def not_minted(url: str, key: str, status: int, raw: bytes) -> NotMinted:
    """What a server's refusal to mint means: about our key, or only about the server."""
    code = "NOT_READY" if status in (502, 503, 504) else str(status)
    with contextlib.suppress(ValueError, AttributeError, KeyError, TypeError):
        code = str(json.loads(raw)["code"])
    kind = KeyRefused if code in ("UNAUTHORIZED", "FORBIDDEN", "401", "403") else NotMinted
    why = "check that the key is whole and has not been revoked" if status < 500 else "it may be able to later"
    return kind(f"{url} mints no token for our API key {id_of(key)} ({code}); {why}", code=code, status=status)


# -- where a key is found


def find_key(url: str, environment: Mapping[str, str] | None = None) -> str:
    """The key to use at this server; empty if there is none."""
    environment = os.environ if environment is None else environment
    if environment.get(KEY):
        return environment[KEY].strip()
    if environment.get(KEY_FILE):
        return read_key(environment[KEY_FILE])
    return KeyFile(environment).get(url)


def read_key(path: str) -> str:
    """The key in a file of its own."""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise BadSetting(f"cannot read the key file {path} ({error.strerror}); check {KEY_FILE}") from None


def client_tls(ca: str) -> ssl.SSLContext:
    """TLS of a client, trusting this authority's PEM file beside the usual ones."""
    context = ssl.create_default_context()
    if ca:
        try:
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            raise BadSetting(f"cannot use the authority {ca} ({error}); check tls_ca: it is a PEM file") from None
    return context
