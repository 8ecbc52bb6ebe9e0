"""The caller's side: an API key, and the token that it minted, for as long as it lasts.

Where a key is found, first to last: what was given, DHSCHED_KEY, the file that DHSCHED_KEY_FILE names, and what
`dhsched up` wrote down for the server's address (KeyFile). A Worker is given its own in its settings.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dhsched.errors import BadSetting, DhschedError

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
    """A key and its current token, if it has one that lasts."""

    def __init__(self, key: str = "") -> None:
        self.key = key
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
        """The token was refused: mint another before the next call."""
        self._until = 0.0


class Minter:
    """Tokens of one key at one server, for clients on an event loop."""

    def __init__(self, http: aiohttp.ClientSession, url: str, key: str) -> None:
        self._http = http
        self._url = url.rstrip("/")
        self._minted = Minted(key)

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
        async with self._http.post(self._url + MINT_PATH, json={}, headers=shown, timeout=timeout) as response:
            raw = await response.read()
            if response.status != 200:
                raise KeyRefused(self._url, response.status, raw)
            return self._minted.take(json.loads(raw))


class KeyRefused(DhschedError):
    """A server minted no token. `code` says whether another one might: NOT_READY is about the server, not the key."""

    def __init__(self, url: str, status: int, raw: bytes) -> None:
        self.status = status
        self.code = "NOT_READY" if status in (502, 503, 504) else str(status)
        with contextlib.suppress(ValueError, AttributeError, KeyError):
            self.code = str(json.loads(raw)["code"])
        why = "check that the key is whole and has not been revoked" if status < 500 else "it may be able to later"
        super().__init__(f"{url} mints no token for our API key ({self.code}); {why}")


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


class KeyFile:
    """Development keys by address, for this user alone: `dhsched up` writes it, the other verbs read it."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        folder = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        self.path = Path(folder) / "dhsched" / "development-keys.json"

    def get(self, url: str) -> str:
        return str(self._read().get(origin(url), ""))

    def put(self, keys: Mapping[str, str]) -> None:
        self._write(self._read() | {origin(url): key for url, key in keys.items()})

    def drop(self, keys: Mapping[str, str]) -> None:
        """Forget these, unless another deployment has taken the address since."""
        gone = {origin(url): key for url, key in keys.items()}
        self._write({url: key for url, key in self._read().items() if gone.get(url) != key})

    def _read(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self.path.read_text())
            if isinstance(found, dict):
                return found
        return {}

    def _write(self, keys: Mapping[str, Any]) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = self.path.with_suffix(f".{os.getpid()}")
            # Made for this user alone from its first byte on, and then put in place as a whole.
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
                json.dump(keys, file)
            new.replace(self.path)
        except OSError as error:
            raise DhschedError(
                f"cannot write {self.path} ({error.strerror}), where the development key goes; set XDG_STATE_HOME to a "
                "folder of yours, or say --access open"
            ) from None


def origin(url: str) -> str:
    """Scheme, host and port. All names of this machine are one: people type any of them."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname in ("localhost", "::1") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def client_tls(ca: str) -> ssl.SSLContext:
    """TLS of a client, trusting this authority's PEM file beside the usual ones."""
    context = ssl.create_default_context()
    if ca:
        try:
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            raise BadSetting(f"cannot use the authority {ca} ({error}); check tls_ca: it is a PEM file") from None
    return context
