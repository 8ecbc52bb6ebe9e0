"""Tokens that keys mint: JWTs (RFC 7519), HS256 and nothing else, signed with a secret of the cell.

`kid` names the secret, so that the secret can be rotated while tokens are in use. Every claim is required and checked:
issuer, audience, key, start and end. Clocks of replicas may differ by LEEWAY_S.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import jwt

from dhsched.access.callers import ROLES, Caller, Role, Scope
from dhsched.access.minting import TTL_MAX_S
from dhsched.errors import BadId
from dhsched.types import check_id

ALGORITHM = "HS256"
ISSUER = "dhsched"
AUDIENCE = "dhsched-api"
LEEWAY_S = 30  # A token is accepted this long before its start and after its end.
TOKEN_CHARS_MAX = 2_048  # A longer token is refused without being parsed.
NO_SECRET = "no secret has this name, so this one signs nothing"
_REQUIRED = ["iss", "aud", "sub", "iat", "nbf", "exp"]


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token whose signature was verified."""

    key: str
    role: Role
    tenant: str
    scopes: frozenset[Scope]
    expires_at: float


def sign(caller: Caller, *, kid: str, secret: str, ttl_s: int, now: float | None = None) -> str:
    """Return a token with this caller's role, tenant and scopes that is valid for `ttl_s` from now."""
    at = int(time.time() if now is None else now)
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": caller.key,
        "iat": at,
        "nbf": at,
        "exp": at + ttl_s,
        "role": caller.role,
        "tenant": caller.tenant,
        "scope": " ".join(sorted(caller.scopes)),
    }
    return jwt.encode(claims, secret, algorithm=ALGORITHM, headers={"kid": kid})


def verify(token: str, secrets: Mapping[str, str]) -> Claims | None:
    """Return the claims of a valid token; None for any other token, whatever is wrong with it."""
    if len(token) > TOKEN_CHARS_MAX:
        return None
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        # An unknown kid must take as long as a wrong signature.
        secret = secrets.get(kid, NO_SECRET) if isinstance(kid, str) else NO_SECRET
        claims = jwt.decode(
            token,
            secret,
            algorithms=[ALGORITHM],
            audience=AUDIENCE,
            issuer=ISSUER,
            leeway=LEEWAY_S,
            options={"require": _REQUIRED},
        )
        if secret is NO_SECRET:
            return None
        return _read(claims)
    except (jwt.InvalidTokenError, BadId, ValueError, TypeError, KeyError, RecursionError):
        return None


def _read(claims: Mapping[str, object]) -> Claims | None:
    role, said = claims["role"], claims["scope"]
    issued, expires = claims["iat"], claims["exp"]
    if not isinstance(issued, int) or not isinstance(expires, int) or expires - issued > TTL_MAX_S:
        return None
    if role not in ROLES or not isinstance(said, str):
        return None
    known: Role = role
    scopes = frozenset(scope for scope in ROLES[known] if scope in said.split())
    return Claims(check_id(claims["sub"], "sub"), known, check_id(claims["tenant"], "tenant"), scopes, float(expires))
