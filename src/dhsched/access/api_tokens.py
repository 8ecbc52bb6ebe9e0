"""Tokens that keys mint: JWTs (RFC 7519), HS256 and nothing else, signed with a secret of the cell.

`kid` names the secret, so that it can be changed while tokens are under way. Every claim is required and checked: who
issued it, for whom, since when, until when. Clocks of replicas may differ by LEEWAY_S.
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
LEEWAY_S = 30
TOKEN_CHARS_MAX = 2_048
NO_SECRET = "no secret has this name, so this one signs nothing"
_REQUIRED = ["iss", "aud", "sub", "iat", "nbf", "exp"]


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says, once it is known to be ours."""

    key: str
    role: Role
    tenant: str
    scopes: frozenset[Scope]
    expires_at: float


def sign(caller: Caller, *, kid: str, secret: str, ttl_s: int, now: float | None = None) -> str:
    """A token for what this caller may do, from now on for `ttl_s`."""
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
    """What the token says; None for every token that does not hold, whatever is wrong with it."""
    if len(token) > TOKEN_CHARS_MAX:
        return None
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        # A name that is none costs the same as a wrong signature.
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
