"""Viewer tokens: what verifies is what was signed, and nothing else does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dhsched.access.api_tokens import AUDIENCE as API_AUDIENCE
from dhsched.access.api_tokens import ISSUER, LEEWAY_S
from dhsched.access.ring import new_secret
from dhsched.access.viewer_tokens import AUDIENCE, kid_of, private_key, public_keys, public_text, sign, verify
from dhsched.access.viewers import TTL_MAX_S, Viewer
from dhsched.ownership.limits import DEFAULT_LIMITS

NOW = 1_800_000_000.0
SECRET = new_secret()
KEYS = public_keys([("3", public_text(SECRET))])
VIEWER = Viewer("acme/L1", frozenset({"watch", "say"}), "Zoë", say_rate_per_s=0.5)


def signed(secret: str = SECRET, kid: str = "3", **changed: Any) -> str:
    """A token with all claims that a valid one has, but for those changed; None leaves a claim out."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "", "jti": "1", "iat": int(NOW), "nbf": int(NOW)}
    claims |= {"exp": int(NOW) + 60, "live": "acme/L1", "grants": "watch", **changed}
    kept = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(kept, private_key(secret), algorithm="EdDSA", headers={"kid": kid})


def by_hand(header: dict[str, Any], claims: dict[str, Any], key: bytes = b"") -> str:
    """A token that no library would make."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    mac = hmac.digest(key, b".".join(parts), hashlib.sha256) if key else b""
    return b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()


def test_a_viewer_token_says_what_was_signed() -> None:
    token = sign(VIEWER, kid="3", secret=SECRET, ttl_s=60, now=NOW)
    shown = verify(token, KEYS, now=NOW)
    assert shown is not None and shown.viewer == VIEWER and shown.kid == "3" == kid_of(token)
    assert shown.name == "Zoë" and shown.until == NOW + 60 + LEEWAY_S
    nameless = [sign(Viewer("a/b", frozenset()), kid="3", secret=SECRET, ttl_s=60, now=NOW) for _ in range(2)]
    names = {shown.name for token in nameless if (shown := verify(token, KEYS, now=NOW))}
    assert len(names) == 2, "viewers without an identity are told apart"


def test_a_viewer_token_has_its_time() -> None:
    token = signed()
    assert verify(token, KEYS, now=NOW - LEEWAY_S) and verify(token, KEYS, now=NOW + 60 + LEEWAY_S - 1)
    assert verify(token, KEYS, now=NOW - LEEWAY_S - 1) is None
    assert verify(token, KEYS, now=NOW + 60 + LEEWAY_S) is None
    assert verify(signed(exp=int(NOW) + TTL_MAX_S), KEYS, now=NOW)
    assert verify(signed(exp=int(NOW) + TTL_MAX_S + 1), KEYS, now=NOW) is None


@pytest.mark.parametrize(
    "changed",
    [
        *({name: None} for name in ("iss", "aud", "sub", "jti", "iat", "nbf", "exp", "live", "grants")),
        *({"live": value} for value in ("L1", "", "a/b/c", 7, ["acme/L1"])),
        *({"exp": value} for value in ("soon", 1.5, True)),
        *({"sub": value} for value in (7, "x" * 65)),
        *({"say_rate": value} for value in (0, -1, 1e9, "1", True)),
        {"grants": ["watch"]},
        {"aud": API_AUDIENCE},
        {"iss": "another"},
        {"jti": "x" * 1000},
    ],
)
def test_a_viewer_token_with_another_claim_is_refused(changed: dict[str, Any]) -> None:
    assert verify(signed(), KEYS, now=NOW) is not None
    try:
        token = signed(**changed)
    except (TypeError, ValueError):
        return  # The library does not even sign it.
    assert verify(token, KEYS, now=NOW) is None


def test_a_forged_viewer_token_is_refused() -> None:
    good = signed()
    header, claims = jwt.get_unverified_header(good), jwt.decode(good, options={"verify_signature": False})
    public = KEYS["3"].public_bytes_raw()
    spki = b"-----BEGIN PUBLIC KEY-----\n" + base64.b64encode(public) + b"\n-----END PUBLIC KEY-----\n"
    forged = {
        "none": by_hand({**header, "alg": "none"}, claims),
        "None": by_hand({**header, "alg": "None"}, claims),
        "no algorithm": by_hand({"kid": "3"}, claims),
        **{
            f"HS256 {n}": by_hand({**header, "alg": "HS256"}, claims, key) for n, key in enumerate((public, spki, b"3"))
        },
        "HS256 with the text of the key": by_hand({**header, "alg": "HS256"}, claims, public_text(SECRET).encode()),
        "EdDSA without a signature": by_hand(header, claims),
        "another's key": signed(new_secret()),
        "an unknown key": signed(kid="4"),
        "a key of its own": by_hand({**header, "jwk": {"kty": "OKP", "crv": "Ed25519", "x": "AA"}}, claims, b"x"),
        "a name that is no text": by_hand({**header, "kid": ["3"]}, claims),
        "other claims": ".".join(
            [good.split(".")[0], by_hand({}, {**claims, "grants": "say"}).split(".")[1], good.split(".")[2]]
        ),
        "too long": signed(sub="x" * 3_000),
        "nothing": "",
        "dots": "..",
    }
    assert {name for name, token in forged.items() if verify(token, KEYS, now=NOW) is not None} == set()
    assert all(isinstance(key, Ed25519PublicKey) for key in KEYS.values())


def test_a_grant_that_is_not_known_grants_nothing() -> None:
    shown = verify(signed(grants="watch admin say2"), KEYS, now=NOW)
    assert shown is not None and shown.viewer.grants == {"watch"}


def test_a_viewer_token_does_not_outlive_the_name_of_its_live() -> None:
    """An ended live is remembered, and its id not given away, for longer than a token made before lasts."""
    assert DEFAULT_LIMITS.ended_ttl_ms / 1000 > TTL_MAX_S + 2 * LEEWAY_S
