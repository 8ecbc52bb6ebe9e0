"""What somebody without a key, or with a lesser one, tries: all of it is 401, and says nothing else."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from dhsched.access import api_tokens
from dhsched.access.gate import UNAUTHORIZED
from dhsched.store.link.address import Address
from dhsched.tokens import Boot, Tokens
from tests.harness.keyed import Keyed, bearer, keyed

Attack = Callable[[dict[str, Any], str], str]
_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_PEM = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
PUBLIC = _RSA.public_key().public_bytes(*_PEM)


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def signed(claims: dict[str, Any], secret: str, headers: dict[str, Any] | None = None, **changed: Any) -> str:
    claims = {name: value for name, value in {**claims, **changed}.items() if value is not None}
    return jwt.encode(claims, secret, algorithm="HS256", headers=headers or {"kid": "1"})


def unsigned(alg: str) -> Attack:
    return lambda claims, _: f"{part({'alg': alg, 'kid': '1', 'typ': 'JWT'})}.{part(claims)}."


def with_kid(kid: Any) -> Attack:
    def attack(claims: dict[str, Any], secret: str) -> str:
        header = {"alg": "HS256", "typ": "JWT"} | ({} if kid is None else {"kid": kid})
        head = f"{part(header)}.{part(claims)}"
        tag = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(head.encode(), secret.encode())
        return f"{head}.{base64.urlsafe_b64encode(tag).rstrip(b'=').decode()}"

    return attack


def changed(**fields: Any) -> Attack:
    return lambda claims, secret: signed(claims, secret, **fields)


def dated(**offsets_s: int) -> Attack:
    """Other times, in seconds from when the token is made."""

    def attack(claims: dict[str, Any], secret: str) -> str:
        times: dict[str, Any] = {field: int(time.time()) + offset_s for field, offset_s in offsets_s.items()}
        return signed(claims, secret, **times)

    return attack


def hmac_of_public_key(claims: dict[str, Any], _: str) -> str:
    """The classic confusion: HS256 with what an RS256 verifier would take for the public key."""
    head = f"{part({'alg': 'HS256', 'kid': '1'})}.{part(claims)}"
    tag = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(head.encode(), PUBLIC)
    return f"{head}.{base64.urlsafe_b64encode(tag).rstrip(b'=').decode()}"


ATTACKS: dict[str, Attack] = {
    **{f"alg {alg}": unsigned(alg) for alg in ("none", "None", "nOnE", "", "HS256")},
    "RS256": lambda claims, _: jwt.encode(claims, _RSA, algorithm="RS256", headers={"kid": "1"}),
    "HS256 with a public key": hmac_of_public_key,
    "HS512": lambda claims, secret: jwt.encode(claims, secret, algorithm="HS512", headers={"kid": "1"}),
    **{
        f"kid {kid!r}": with_kid(kid)
        for kid in (None, "", "2", "01", "../../etc/passwd", "boot:1", "1\n", "' OR '1'='1", 1, ["1"], {"a": 1})
    },
    "another secret": lambda claims, _: signed(claims, "x" * 64),
    "the secret that stands in": lambda claims, _: signed(claims, api_tokens.NO_SECRET, {"kid": "9"}),
    "expired": dated(iat=-2_000, nbf=-2_000, exp=-100),
    "not yet valid": dated(nbf=300),
    "from the future": dated(iat=300, nbf=300, exp=900),
    "too long a life": dated(exp=10 * 3600),
    "times that are no numbers": changed(exp="soon"),
    "a time past all times": changed(exp=10**400),
    **{f"no {name}": changed(**{name: None}) for name in ("exp", "iat", "nbf", "aud", "iss", "sub", "role", "tenant")},
    "another audience": changed(aud="dhsched-worker"),
    "another issuer": changed(iss="somebody"),
    "another role than the key's": changed(role="admin", scope="admin"),
    "another tenant than the key's": changed(tenant="other"),
    "a tenant that reaches out": changed(tenant="a/b"),
    "no such role": changed(role="root"),
    "scopes that are no text": changed(scope={"admin": 1}),
    "no such key": changed(sub="0" * 12),
    "a cut signature": lambda claims, secret: signed(claims, secret)[:-4],
    "no signature": lambda claims, secret: signed(claims, secret).rpartition(".")[0] + ".",
    "a signature of something else": lambda claims, secret: (
        f"{part({'alg': 'HS256', 'kid': '1'})}.{part({**claims, 'tenant': 'x'})}.{signed(claims, secret).split('.')[2]}"
    ),
    "huge": changed(filler="x" * 5_000),
    "deep": lambda claims, _: f"{part({'alg': 'HS256', 'kid': '1'})}.{'[' * 1_000}.x",
    "not a token": lambda *_: "x",
    "dots": lambda *_: "..",
    "other letters": lambda *_: "é" * 10,
}


async def claims_of(k: Keyed, token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


async def test_every_attack_is_the_same_401(server: Address) -> None:
    async with keyed(server) as k:
        token = await k.token(await k.key("app", tenant="acme"))
        claims, secret = await claims_of(k, token), k.ring.secrets("access")["1"]
        assert (await k.ask("GET", "/v1/lives", bearer(signed(claims, secret))))[0] == 200, "an honest one holds"
        status, nothing = await k.ask("GET", "/v1/lives")
        assert (status, nothing["code"], nothing["detail"]) == (401, "UNAUTHORIZED", UNAUTHORIZED)
        for name, attack in ATTACKS.items():
            for at, path in (("dispatch", "/v1/lives"), ("infer", "/v1/lives/x/events"), ("dispatch", "/v1/nowhere")):
                status, answer = await k.ask("GET", path, bearer(attack(claims, secret)), at=at)
                assert (status, answer) == (401, nothing), (name, at)
        boot = Tokens(k.ring).issue(Boot("w#1", "b", "w", "gpu", 1))
        boot_secret = k.ring.secrets("boot")["1"]
        for shown in (boot, signed(claims, boot_secret), secret):
            assert await k.ask("GET", "/v1/lives", bearer(shown)) == (401, nothing)
        for header in ("", "Bearer", "Bearer ", f"Basic {token}", f"bearer{token}", f"Bearer {token} x"):
            assert await k.ask("GET", "/v1/lives", {"Authorization": header}) == (401, nothing), header


@pytest.mark.parametrize("at", ["dispatch", "infer"])
async def test_keys_that_are_none_mint_nothing(server: Address, at: str) -> None:
    async with keyed(server) as k:
        key = await k.key("app")
        prefix, key_id, secret = key.split("_", 2)
        wrong = [
            *(f"{prefix}_{key_id}_{'x' * 43}", f"{prefix}_{'0' * 12}_{secret}", key[:-1], key + "x", key_id),
            *(f"{prefix}_{key_id}_", f"{prefix}_{key_id}", "dhk_", "dhk__", key.upper(), key + "x" * 5_000),
            k.ring.api_keys[key_id].hash,
        ]
        answers = [await k.ask("POST", "/v1/tokens", bearer(each), {}, at=at) for each in wrong]
        status, nothing = await k.ask("POST", "/v1/tokens", {}, {}, at=at)
        assert status == 401 and answers == [(401, nothing)] * len(wrong)
        minted = await k.token(key, at=at)
        assert (await k.ask("POST", "/v1/tokens", bearer(minted), {}, at=at)) == (401, nothing), "a token mints none"


async def test_wrong_and_unknown_keys_take_the_same_way(server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever does not hold is looked at twice, with one reading of the ring between."""
    async with keyed(server) as k:
        key = await k.key("app")
        token = await k.token(key)
        claims, secret = await claims_of(k, token), k.ring.secrets("access")["1"]
        steps: list[str] = []
        find, reread = k.gate._find, k.ring.reread

        async def counted_find(shown: str, rule: Any) -> Any:
            steps.append("find")
            return await find(shown, rule)

        async def counted_reread() -> None:
            steps.append("reread")
            await reread()

        monkeypatch.setattr(k.gate, "_find", counted_find)
        monkeypatch.setattr(k.ring, "reread", counted_reread)
        forged = (signed(claims, "x" * 64), signed(claims, secret, sub="0"), with_kid("7")(claims, secret))
        wrong = [f"dhk_{'0' * 12}_x", key[:-1] + "#", "x.y.z", *forged]
        for shown in wrong:
            path = "/v1/tokens" if shown.startswith("dhk_") else "/v1/lives/x/end"
            steps.clear()
            assert (await k.ask("POST", path, bearer(shown), {}))[0] == 401
            assert steps == ["find", "reread", "find"], shown


async def test_probes_say_yes_or_no(server: Address) -> None:
    async with keyed(server) as k:
        for at in ("dispatch", "infer"):
            for path in ("/healthz", "/readyz"):
                assert await k.ask("GET", path, at=at) == (200, {}), "no name, no version"
            async with k.clients[at].get("/v1/lives") as response:
                assert response.headers["WWW-Authenticate"] == "Bearer" and "X-Request-Id" not in response.headers
