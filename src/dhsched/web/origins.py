"""The door: refuse requests of web pages of other origins, and requests for unknown host names, before anything else.

A web page can send requests to any address that its viewer's browser reaches, also to loopback. Without keys such a
page could do anything there. So these headers are checked first, in every request of every role, WebSockets and unknown
paths included:

    Origin           must be the page's own origin (the Host that it called), or in `allowed_origins`; else 403 ORIGIN
    Sec-Fetch-Site   must not be another site when there is no Origin; else 403 ORIGIN. Following a link is allowed
    Host             without keys: must be an address, localhost, or a configured name; else 403 HOST

The check of Host is against DNS rebinding: an attacker's name is made to resolve to this machine, so that the browser
takes page and replica for one origin. An address as Host cannot be rebound. With keys, rebinding gains a page nothing,
and a load balancer may use any name. Clients that are no browsers send only Host.

Before a page of an allowed origin may do more than a form could, the browser sends a preflight request (CORS), which is
answered here too.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from aiohttp import web

from dhsched.settings import is_loopback, listed
from dhsched.web.problems import Problem

HOST_MAX = 262  # Characters of a Host header: the longest DNS name, a final dot, a port. A longer header is invalid.
HOSTS_KEPT = 256  # Host headers whose names are remembered: clients send the same one in every request.
DEFAULT_PORTS = {"http": 80, "https": 443}
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id, "
    "X-Tenant, traceparent",
    "Access-Control-Max-Age": "600",
}
EXPOSED = "Link, Location, Retry-After, X-Request-Id"


@dataclass(frozen=True, slots=True)
class Door:
    """The door of a listener. `origins` are allowed beside its own; `names` are the host names that it answers to."""

    origins: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def answer(self, request: web.Request, *, open_to_all: bool) -> web.Response | None:
        """Return the response to a request that is refused, or that is a browser's preflight; None for any other."""
        headers, method = request.headers, request.method
        refused = self.refusal(headers, method=method, open_to_all=open_to_all)
        if refused is not None:
            return refused.response()
        if method == "OPTIONS" and "Access-Control-Request-Method" in headers:
            return web.Response(status=204, headers=PREFLIGHT)
        return None

    def refusal(self, headers: Mapping[str, str], *, method: str, open_to_all: bool) -> Problem | None:
        """Return the problem of a request that the door refuses; None if the request may go on."""
        host = headers.get("Host")
        if open_to_all and host is not None and not self._is_ours(host):
            return Problem(
                "HOST",
                f"this listener does not answer to the name {host[:100]!r}, because its access is open: call it by its "
                "address or as localhost, list the name in the setting allowed_origins (http://NAME), or use keys",
            )
        origin = headers.get("Origin")
        if origin is not None and not self._lets_in(origin, host or ""):
            return Problem(
                "ORIGIN",
                f"pages of {origin[:100]} may not call this listener: list this origin in the setting allowed_origins, "
                "or let a proxy pass on the header Host as the browser sent it",
            )
        # A page loads without an Origin: pictures, scripts, and requests whose answers it cannot read.
        foreign = headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        follows_link = headers.get("Sec-Fetch-Mode") == "navigate" and method in ("GET", "HEAD")
        if origin is None and foreign and not follows_link:
            return Problem("ORIGIN", "pages of other sites may not load this; link to it instead")
        return None

    def allows(self, origin: str) -> bool:
        return origin.lower() in self.origins

    def _lets_in(self, origin: str, host: str) -> bool:
        return self.allows(origin) or is_origin_of(origin, host)

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        return is_address(name) or name == "localhost" or name.endswith(".localhost") or name in self.names


def make_door(settings: object) -> Door:
    """Return the door of a role, from its settings `host`, `allowed_origins` and, if it has one, `advertise`."""
    given = {name: str(getattr(settings, name, "")) for name in ("host", "allowed_origins", "advertise")}
    origins = frozenset(origin.lower() for origin in listed(given["allowed_origins"]))
    names = {given["host"].lower(), *(host_of(url) for url in (*origins, given["advertise"]))}
    if not is_loopback(given["host"]):
        names.add(socket.gethostname().lower())
    return Door(origins, frozenset(names - {""}))


def mark_allowed(door: Door, origin: str, response: web.StreamResponse) -> None:
    """Set the headers that let a page of an allowed origin read this response."""
    if door.allows(origin):
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = EXPOSED
        response.headers["Vary"] = "Origin"


# -- names and origins


def is_origin_of(origin: str, host: str) -> bool:
    """Return whether a page of `origin` calls its own host. The scheme may differ: a proxy may speak TLS for us."""
    parts = split(origin)
    if parts is None or parts.scheme not in DEFAULT_PORTS or not host:
        return False
    usual = DEFAULT_PORTS[parts.scheme]
    called = split(f"{parts.scheme}://{host}")
    return called is not None and (parts.hostname, parts.port or usual) == (called.hostname, called.port or usual)


def host_name(host: str) -> str:
    """Return the name in a Host header, without its port; empty when the header is invalid."""
    return _host_name(host) if len(host) <= HOST_MAX else ""


@lru_cache(maxsize=HOSTS_KEPT)
def _host_name(host: str) -> str:
    parts = split(f"http://{host}")
    return "" if parts is None or parts.netloc != host else parts.hostname or ""


def host_of(url: str) -> str:
    parts = split(url)
    return "" if parts is None else parts.hostname or ""


@lru_cache(maxsize=HOSTS_KEPT)
def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # Only this access raises ValueError for an invalid port.
    except ValueError:
        return None
    return None if any(space in url for space in " \t@") else parts
