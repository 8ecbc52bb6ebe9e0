"""Viewer tokens at Dispatch: who mints them, for which lives; the public keys, and their rotation."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from dhsched.access.viewer_tokens import public_keys, verify
from dhsched.access.viewers import TTL_MAX_S, VerifiedViewer
from dhsched.room.app import open_room
from dhsched.room.settings import RoomSettings
from dhsched.store.link.address import Address
from tests.harness.keyed import Keyed, bearer, keyed

TOKENS = "/v1/lives/L1/viewer-tokens"


async def with_live(k: Keyed, who: dict[str, str]) -> None:
    admin = await k.role("admin")
    assert (await k.ask("PUT", "/v1/pools/gpu", admin, {}))[0] == 201
    assert (await k.ask("PUT", "/v1/digital-ids/anna", admin, {"pools": [{"pool": "gpu"}]}))[0] == 201
    await k.api.workers(1, capacity=4)
    assert (await k.ask("POST", "/v1/lives", who, {"digital_id": "anna", "live_id": "L1"}))[0] == 201


async def verified(k: Keyed, token: str) -> VerifiedViewer | None:
    """As a room would."""
    status, found = await k.ask("GET", "/v1/viewer-keys", await k.role("room"))
    assert status == 200
    assert all((key["kty"], key["crv"], key["alg"]) == ("OKP", "Ed25519", "EdDSA") for key in found["keys"])
    return verify(token, public_keys((key["kid"], key["x"]) for key in found["keys"]))


async def test_an_app_mints_a_viewer_token_for_its_own_live(server: Address) -> None:
    async with keyed(server) as k:
        app = await k.role("app", tenant="acme")
        await with_live(k, app)
        body: dict[str, Any] = {"grants": ["watch", "say"], "identity": "Zoë", "ttl_s": 60, "say_rate_per_s": 0.5}
        status, minted = await k.ask("POST", TOKENS, app, body)
        assert status == 200 and (minted["live_id"], minted["expires_in_s"]) == ("L1", 60)
        shown = await verified(k, minted["token"])
        assert shown is not None and shown.viewer.live == "acme/L1" and shown.viewer.grants == {"watch", "say"}
        assert (shown.viewer.identity, shown.viewer.say_rate_per_s) == ("Zoë", 0.5)
        # Without a word about it, a viewer only watches.
        shown = await verified(k, (await k.ask("POST", TOKENS, app, {}))[1]["token"])
        assert shown is not None and shown.viewer.grants == {"watch"}

        other = await k.role("app", tenant="other")
        assert (await k.ask("POST", TOKENS, other, {}))[0] == 404, "another tenant's live"
        assert (await k.ask("POST", "/v1/lives/nope/viewer-tokens", app, {}))[0] == 404
        # It is no token of the API.
        assert (await k.ask("GET", "/v1/lives", bearer(minted["token"])))[0] == 401

        assert (await k.ask("POST", "/v1/lives/L1/end", app, {}))[0] == 200
        status, problem = await k.ask("POST", TOKENS, app, {})
        assert (status, problem["code"]) == (410, "ENDED")


async def test_a_narrow_token_mints_no_wider_viewer_token(server: Address) -> None:
    async with keyed(server) as k:
        key = await k.key("app")
        await with_live(k, bearer(await k.token(key)))
        writer = bearer(await k.token(key, scopes=["lives:write"]))
        assert (await k.ask("POST", TOKENS, writer, {"grants": ["watch"]}))[0] == 200
        for grant in ("say", "interrupt"):
            status, problem = await k.ask("POST", TOKENS, writer, {"grants": ["watch", grant]})
            assert (status, problem["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "body",
    [
        *({"ttl_s": value} for value in (0, -1, TTL_MAX_S + 1, "60")),
        *({"grants": value} for value in ([], ["admin"], "watch")),
        *({"identity": value} for value in ("x" * 65, "a\nb", "a\x00", "\u202ea")),
        *({"say_rate_per_s": value} for value in (0, 1_000)),
        {"tenant": "acme"},
    ],
)
async def test_what_a_viewer_token_may_not_say(server: Address, body: dict[str, Any]) -> None:
    async with keyed(server) as k:
        app = await k.role("app")
        assert (await k.ask("POST", TOKENS, app, body))[0] == 400, "before the live is looked for"


async def test_rotated_viewer_tokens(server: Address) -> None:
    async with keyed(server) as k:
        app, admin = await k.role("app"), await k.role("admin")
        await with_live(k, app)
        first = (await k.ask("POST", TOKENS, app, {}))[1]["token"]
        assert (await k.ask("POST", "/v1/secrets/viewer/rotate", admin, {}))[1]["kid"] == "2"
        second = (await k.ask("POST", TOKENS, app, {}))[1]["token"]
        assert await verified(k, first) and await verified(k, second), "the one before still verifies"
        assert (await k.ask("POST", "/v1/secrets/viewer/rotate", admin, {"drop_old": True}))[1]["dropped"] == ["1", "2"]
        assert await verified(k, first) is None and await verified(k, second) is None


async def test_a_room_with_its_key_knows_viewer_tokens_of_its_own_tenant(server: Address) -> None:
    async with keyed(server) as k:
        acme, other = await k.role("app", tenant="acme"), await k.role("app", tenant="other")
        await with_live(k, acme)
        assert (await k.ask("POST", "/v1/lives", other, {"digital_id": "anna", "live_id": "L1"}))[0] == 201
        minted = {name: (await k.ask("POST", TOKENS, app, {}))[1]["token"] for name, app in (("a", acme), ("o", other))}
        urls: dict[str, Any] = {role: str(client.make_url("/")) for role, client in k.clients.items()}
        for key, own, strange in ((await k.key("room", tenant="acme"), 200, 403), ("dhk_0_no", 503, 503)):
            settings = RoomSettings(port=0, tenant="acme", key=key, **urls)
            async with open_room(settings) as room, TestClient(TestServer(room.app)) as viewer:
                for token, status in ((minted["a"], own), (minted["o"], strange)):
                    async with viewer.get("/v1/lives/L1/state", headers=bearer(token)) as response:
                        assert response.status == status, await response.text()
                async with viewer.get("/v1/lives/L1/state", headers=bearer("x")) as response:
                    assert response.status == 401
