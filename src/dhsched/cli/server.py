"""A small synchronous client of the HTTP APIs, for the command line: one call, one answer, one error.

What the server refuses is raised as `Refused` with its code and its sentence, so that a script can tell them apart.
Where there is an API key for the server (access/minting.py), each call has a token that the key mints.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from dhsched.access.key_file import KeyFile
from dhsched.access.minting import KEY, KEY_FILE, MINT_PATH, TENANT, TLS_CA, Minted, client_tls, find_key, key_refused
from dhsched.errors import BadAddress, DhschedError

DEFAULT_URL = "http://127.0.0.1:7400"


class Refused(DhschedError):
    """The server answered with a problem (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("code", status))
        self.problem = problem
        detail = problem.get("detail") or f"the server answered {status}"
        super().__init__(f"{detail} ({self.code})")


class Server:
    """One server. `timeout_s` bounds each call; without a `key`, one is looked for."""

    def __init__(self, url: str = DEFAULT_URL, *, timeout_s: float = 30.0, key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadAddress(f"server address {url!r} must look like {DEFAULT_URL}")
        self._url = url.rstrip("/")
        self._parts = parts
        self._timeout_s = timeout_s
        self._minted = Minted(find_key(url) if key is None else key)

    def call(
        self,
        method: str,
        *path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
    ) -> Any:
        """The answer's document, None where it has none. The words of `path` are quoted: a WorkerID has a `#`."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = self._parts.path.rstrip("/") + "/v1/" + "/".join(quote(word, safe="") for word in path)
        if given:
            target += "?" + urlencode(given)
        sent = {**self._access(), **(headers or {})}
        status, raw = self._exchange(method, target, body, sent, self._timeout_s + wait_s)
        if status == 401:
            self._minted.forget()
        try:
            document = json.loads(raw) if raw else None
        except ValueError:
            document = {"detail": f"{self._url} answered {status} with something that is not JSON; is it dhsched?"}
            status = max(status, 500)
        if status >= 400:
            problem = document if isinstance(document, dict) else {}
            raise Refused(status, self._without_key(problem) if status == 401 and not self._minted.key else problem)
        return document

    def _without_key(self, problem: Mapping[str, Any]) -> Mapping[str, Any]:
        """A 401 as it looks from here: we had nothing to show."""
        said = f"{self._url} asks for a key, and there is no key for it in {KEY}, {KEY_FILE} or {KeyFile().path}"
        return {**problem, "detail": f"{said}: set {KEY} to an API key"}

    def _access(self) -> dict[str, str]:
        """The headers that say who we are, and for which tenant."""
        tenant = os.environ.get(TENANT)
        chosen = {"X-Tenant": tenant} if tenant else {}
        ready = self._minted.headers()
        if ready is None:
            shown = {"Authorization": f"Bearer {self._minted.key}"}
            target = self._parts.path.rstrip("/") + MINT_PATH
            status, raw = self._exchange("POST", target, {}, shown, self._timeout_s)
            if status != 200:
                raise key_refused(self._url, self._minted.key, str(status))
            ready = self._minted.take(json.loads(raw))
        return {**ready, **chosen}

    def text(self, path: str) -> str:
        """What is served at `path` outside the API, as it is: metrics, health."""
        target = self._parts.path.rstrip("/") + path
        status, raw = self._exchange("GET", target, None, self._access(), self._timeout_s)
        if status >= 400:
            raise Refused(status, {"detail": f"{self._url}{path} answered {status}"})
        return raw.decode(errors="replace")

    def _exchange(
        self, method: str, target: str, body: Any, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        where = (self._parts.hostname or "", self._parts.port)
        connection = (
            http.client.HTTPSConnection(*where, timeout=timeout_s, context=client_tls(os.environ.get(TLS_CA, "")))
            if self._parts.scheme == "https"
            else http.client.HTTPConnection(*where, timeout=timeout_s)
        )
        sent = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, target, sent, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise DhschedError(
                f"cannot reach {self._url} ({error}): start it with `dhsched run dispatch`, or give its address with "
                "--url or DHSCHED_URL"
            ) from error
        finally:
            connection.close()
