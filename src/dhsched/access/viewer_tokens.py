"""Viewer tokens: what one person may do with one live in a room. JWTs, EdDSA (Ed25519) and nothing else.

An app's key mints them at Dispatch; a viewer shows them to a room. The private keys are the secrets `viewer:<n>` of the
key ring; a room has only the public keys, so it verifies a token without asking anybody and can sign none.

    live        full name of the one live that the token is for, with its tenant
    sub         identity: text that the app chose, shown as who said something; may be empty
    jti         number of this token: tells viewers without an identity apart
    grants      `watch`, `say` (type), `interrupt`
    say_rate, interrupt_rate    items a second, instead of the room's own limits; optional

An ended live is remembered for a day, and its id is not given to another live during that time. TTL_MAX_S is shorter,
so a token never applies to a later live with the same id.
"""

from __future__ import annotations

import base64
import secrets as random_secrets
import time
from collections.abc import Iterable, Mapping

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dhsched.access.api_tokens import ISSUER, LEEWAY_S, TOKEN_CHARS_MAX
from dhsched.access.viewers import (
    GRANTS,
    IDENTITY_CHARS_MAX,
    RATE_MAX_PER_S,
    RATE_MIN_PER_S,
    TTL_MAX_S,
    VerifiedViewer,
    Viewer,
)
from dhsched.errors import BadId
from dhsched.types import check_live

ALGORITHM = "EdDSA"
AUDIENCE = "dhsched-viewer"
_REQUIRED = ["iss", "aud", "sub", "jti", "iat", "nbf", "exp"]


def sign(viewer: Viewer, *, kid: str, secret: str, ttl_s: int, now: float | None = None) -> str:
    """Return a token with these rights that is valid for `ttl_s` from now."""
    at = int(time.time() if now is None else now)
    claims: dict[str, object] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": viewer.identity,
        "jti": random_secrets.token_hex(8),
        "iat": at,
        "nbf": at,
        "exp": at + ttl_s,
        "live": viewer.live,
        "grants": " ".join(sorted(viewer.grants)),
    }
    rates = {"say_rate": viewer.say_rate_per_s, "interrupt_rate": viewer.interrupt_rate_per_s}
    claims |= {name: rate for name, rate in rates.items() if rate is not None}
    return jwt.encode(claims, private_key(secret), algorithm=ALGORITHM, headers={"kid": kid})


def kid_of(token: str) -> str:
    """Return the name of the key that a token says it is signed with; empty for text that is no token."""
    if len(token) > TOKEN_CHARS_MAX:
        return ""
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except (jwt.InvalidTokenError, ValueError, TypeError, RecursionError):
        return ""
    return kid if isinstance(kid, str) else ""


def verify(token: str, keys: Mapping[str, Ed25519PublicKey], *, now: float | None = None) -> VerifiedViewer | None:
    """Return the viewer of a valid token; None for any other token, whatever is wrong with it."""
    kid = kid_of(token)
    key = keys.get(kid)
    if key is None:
        return None
    try:
        # The times are checked below, by `now`. The list of algorithms is what refuses `none` and HS256.
        claims = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            audience=AUDIENCE,
            issuer=ISSUER,
            options={"require": _REQUIRED, "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
        return _read(claims, kid, time.time() if now is None else now)
    except (jwt.InvalidTokenError, BadId, ValueError, TypeError, KeyError, RecursionError):
        return None


def _read(claims: Mapping[str, object], kid: str, now: float) -> VerifiedViewer | None:
    issued, begins, expires = (_time(claims[name]) for name in ("iat", "nbf", "exp"))
    if expires - issued > TTL_MAX_S or not begins - LEEWAY_S <= now < expires + LEEWAY_S:
        return None
    identity, number, said = claims["sub"], claims["jti"], claims["grants"]
    if not isinstance(identity, str) or not isinstance(number, str) or not isinstance(said, str):
        return None
    if len(identity) > IDENTITY_CHARS_MAX or len(number) > IDENTITY_CHARS_MAX:
        return None
    viewer = Viewer(
        live=check_live(claims["live"]),
        grants=frozenset(grant for grant in GRANTS if grant in said.split()),
        identity=identity,
        say_rate_per_s=_rate(claims.get("say_rate")),
        interrupt_rate_per_s=_rate(claims.get("interrupt_rate")),
    )
    return VerifiedViewer(viewer, kid, number, float(expires + LEEWAY_S))


def _time(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a time is a whole number of seconds")
    return value


def _rate(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not RATE_MIN_PER_S <= value <= RATE_MAX_PER_S:
        raise ValueError("a rate is a number within its limits")
    return float(value)


# -- keys


def private_key(secret: str) -> Ed25519PrivateKey:
    """Return the key whose seed is a secret of the key ring: 32 random bytes, in hexadecimal digits."""
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))


def public_text(secret: str) -> str:
    """Return the public key of a secret as a JWK has it (RFC 8037): base64url without padding."""
    return base64.urlsafe_b64encode(private_key(secret).public_key().public_bytes_raw()).rstrip(b"=").decode()


def public_keys(found: Iterable[tuple[str, str]]) -> dict[str, Ed25519PublicKey]:
    """Return the keys by `kid`, from pairs of `kid` and the text that `public_text` returns. Raise ValueError."""
    return {
        kid: Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        for kid, text in found
    }
