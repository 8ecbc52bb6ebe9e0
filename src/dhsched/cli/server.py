"""A small synchronous client of the HTTP APIs, for the command line: one call, one answer, one error.

What the server refuses is raised as `Refused` with its code and its sentence, so that a script can tell them apart.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

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
    """One server. `timeout_s` bounds each call."""

    def __init__(self, url: str = DEFAULT_URL, *, timeout_s: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadAddress(f"server address {url!r} must look like {DEFAULT_URL}")
        self._url = url.rstrip("/")
        self._parts = parts
        self._timeout_s = timeout_s

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
        status, raw = self._exchange(method, target, body, headers or {}, self._timeout_s + wait_s)
        try:
            document = json.loads(raw) if raw else None
        except ValueError:
            document = {"detail": f"{self._url} answered {status} with something that is not JSON; is it dhsched?"}
            status = max(status, 500)
        if status >= 400:
            raise Refused(status, document if isinstance(document, dict) else {})
        return document

    def text(self, path: str) -> str:
        """What is served at `path` outside the API, as it is: metrics, health."""
        status, raw = self._exchange("GET", self._parts.path.rstrip("/") + path, None, {}, self._timeout_s)
        if status >= 400:
            raise Refused(status, {"detail": f"{self._url}{path} answered {status}"})
        return raw.decode(errors="replace")

    def _exchange(
        self, method: str, target: str, body: Any, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=timeout_s)
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
