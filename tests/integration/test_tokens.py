"""Boot tokens: bound to one WorkerID, signed by the cell, refused when anything about them is off."""

from __future__ import annotations

import base64
import json

import jwt
import pytest

from dhsched.access.ring import open_ring
from dhsched.errors import BadToken
from dhsched.store.link.address import Address
from dhsched.store.steps.redis import RedisStore
from dhsched.tokens import ALGORITHM, AUDIENCE, PUBLISH_AUDIENCE, TTL_S, Boot, Publishing, Tokens
from dhsched.types import Generation

BOOT = Boot("gpu-7#12", "b1", "gpu-7", "gpu", 4)


async def test_two_replicas_agree_on_the_first_secret(server: Address) -> None:
    async with await RedisStore.open(server) as one, await RedisStore.open(server) as two:
        first, second = Tokens(await open_ring(one.link, one.keys)), Tokens(await open_ring(two.link, two.keys))
        proven = await second.read(first.issue(BOOT))
        assert proven.boot == BOOT and not proven.renew


async def test_what_we_did_not_sign_is_refused(server: Address) -> None:
    async with await RedisStore.open(server) as store:
        tokens = Tokens(await open_ring(store.link, store.keys))
        good = tokens.issue(BOOT)
        header, claims, signature = good.split(".")
        other = json.loads(base64.urlsafe_b64decode(claims + "==")) | {"sub": "gpu-8#1"}
        forged = base64.urlsafe_b64encode(json.dumps(other).encode()).rstrip(b"=").decode()
        unsigned = jwt.encode(other, "", algorithm="none", headers={"kid": "1"})
        other_secret = jwt.encode(other, "x" * 64, algorithm=ALGORITHM, headers={"kid": "1"})
        unknown_kid = jwt.encode(other, "x" * 64, algorithm=ALGORITHM, headers={"kid": "7"})
        for bad in ("", "a.b.c", f"{header}.{forged}.{signature}", unsigned, other_secret, unknown_kid):
            with pytest.raises(BadToken):
                await tokens.read(bad)


async def test_time_and_audience_and_renewal(server: Address) -> None:
    async with await RedisStore.open(server) as store:
        now = 1_000_000.0
        tokens = Tokens(await open_ring(store.link, store.keys), clock=lambda: now)
        token = tokens.issue(BOOT)
        now += TTL_S * 0.6
        assert (await tokens.read(token)).renew
        now += TTL_S
        with pytest.raises(BadToken, match="expired"):
            await tokens.read(token)
        secret = (await store.link.call("HGET", store.keys.of("keys"), "boot:1")).decode()
        elsewhere = {"aud": "other", "sub": "gpu-7#12", "iat": int(now), "exp": int(now + 60), "capacity": 1}
        with pytest.raises(BadToken):
            await tokens.read(jwt.encode(elsewhere, secret, algorithm=ALGORITHM, headers={"kid": "1"}))
        assert (await tokens.read(jwt.encode({**elsewhere, "aud": AUDIENCE}, secret, headers={"kid": "1"}))).boot.worker


async def test_a_new_secret_signs_and_the_old_one_still_holds(server: Address) -> None:
    async with await RedisStore.open(server) as store:
        old = Tokens(await open_ring(store.link, store.keys))
        await store.link.call("HSET", store.keys.of("keys"), "boot:2", "y" * 64)
        new = Tokens(await open_ring(store.link, store.keys))
        assert (await new.read(old.issue(BOOT))).boot == BOOT
        old._refreshed_at = 0
        assert (await old.read(new.issue(BOOT))).boot == BOOT, "an unknown secret is looked for once"


async def test_a_publish_token_is_for_one_generation_and_nothing_else(server: Address) -> None:
    async with await RedisStore.open(server) as store:
        tokens = Tokens(await open_ring(store.link, store.keys))
        publishing = Publishing("default/L", Generation("gpu-7#12", 3))
        token = tokens.issue_publish(publishing)
        assert await tokens.read_publish(token) == publishing
        with pytest.raises(BadToken):
            await tokens.read(token)
        with pytest.raises(BadToken):
            await tokens.read_publish(tokens.issue(BOOT))
        secret = (await store.link.call("HGET", store.keys.of("keys"), "boot:1")).decode()
        good = {"aud": PUBLISH_AUDIENCE, "sub": "gpu-7#12", "iat": 1, "exp": 2**40, "live": "default/L", "epoch": 3}
        for change in ({"epoch": 0}, {"epoch": True}, {"epoch": "3"}, {"live": "L"}, {"sub": "gpu-7"}, {"exp": 2}):
            forged = jwt.encode({**good, **change}, secret, algorithm=ALGORITHM, headers={"kid": "1"})
            with pytest.raises(BadToken):
                await tokens.read_publish(forged)
