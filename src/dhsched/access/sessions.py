"""Sessions of browsers: a short token in a cookie, which scripts of the page cannot read.

A browser adds a cookie to requests that other pages cause, too. So a session counts only where the browser itself says
that the request comes from a page of this origin, or from the person (Sec-Fetch-Site). Browsers say so on HTTPS and on
loopback: over plain HTTP elsewhere a session is worth nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from dhsched.access.callers import Role, Scope
from dhsched.access.minting import TTL_MAX_S, TTL_S

COOKIE = "dhsched_session"
COOKIES_CHARS_MAX = 8_192  # A longer header is not searched.
OURS = ("same-origin", "none")


class BeginSession(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Lifetime and rights of the session; by default those of the key."""

    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=TTL_MAX_S)] = TTL_S
    scopes: Annotated[list[Scope], msgspec.Meta(max_length=16)] = []


class Session(msgspec.Struct):
    """What the session may do, and for how long. Its token is in the cookie alone."""

    role: Role
    tenant: str
    scopes: list[Scope]
    expires_in_s: int


def session_of(headers: Mapping[str, str]) -> str:
    """Return the token of the request's session; empty if it has none, or if another page may have sent it."""
    cookies = headers.get("Cookie", "")
    if not cookies or len(cookies) > COOKIES_CHARS_MAX or headers.get("Sec-Fetch-Site") not in OURS:
        return ""
    for cookie in cookies.split(";"):
        name, _, value = cookie.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def cookie(token: str, ttl_s: int, *, secure: bool) -> str:
    """Return the header that sets the cookie; with an empty token, the one that removes it."""
    return f"{COOKIE}={token}; Max-Age={ttl_s}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
