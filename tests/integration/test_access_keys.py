"""Keys over their life: made, used up, revoked; secrets that change under way; Workers that register by key."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from dhsched.errors import BadSetting, KeyRefused
from dhsched.links.messages import Register, Resume
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from dhsched.tokens import Boot, Tokens
from dhsched.worker import dispatch_link
from tests.harness.fleet import PATIENCE_S, Record, until
from tests.harness.keyed import bearer, keyed


async def test_a_key_from_its_making_to_its_end(server: Address) -> None:
    async with keyed(server) as k:
        admin = await k.role("admin")
        body = {"role": "app", "tenant": "acme", "note": "for the shop"}
        status, made = await k.ask("POST", "/v1/keys", admin, body)
        assert status == 201 and made["record"] | body == made["record"]
        stored = await k.api.context.store.link.call("HGET", k.api.context.store.keys.of("keys"), _field(made))
        secret = made["key"].split("_", 2)[2]
        assert secret.encode() not in stored, "only a hash is kept"
        listed = (await k.ask("GET", "/v1/keys", admin))[1]["keys"]
        assert made["record"] in listed and "hash" not in str(listed) and secret not in str(listed)
        app = bearer(await k.token(made["key"]))
        elsewhere = bearer(await k.token(made["key"], at="infer"))
        assert (await k.ask("GET", "/v1/lives", app))[0] == (await k.ask("GET", "/v1/lives", elsewhere))[0] == 200
        async with k.infer.ws_connect("/v1/stream", headers=app) as socket:
            path = f"/v1/keys/{made['record']['key_id']}"
            assert (await k.ask("DELETE", path, admin))[0] == 204
            assert (await k.ask("DELETE", path, admin))[0] == 404
            assert (await k.ask("GET", "/v1/lives", app))[0] == 401, "at once where it was revoked"
            assert (await k.ask("POST", "/v1/tokens", bearer(made["key"]), {}))[0] == 401
            ended = await asyncio.wait_for(socket.receive(), 10)
            assert ended.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR), "its stream is cut elsewhere"
        assert (await k.ask("POST", "/v1/lives/x/text", app, {"text": "x"}, at="infer"))[0] == 401
        [last] = [row["key_id"] for row in (await k.ask("GET", "/v1/keys", admin))[1]["keys"]]
        status, problem = await k.ask("DELETE", f"/v1/keys/{last}", admin)
        assert (status, problem["code"]) == (409, "IN_USE"), "nobody locks everybody out"


def _field(made: dict[str, Any]) -> str:
    return f"api:{made['record']['key_id']}"


async def test_secrets_change_while_tokens_are_under_way(server: Address) -> None:
    async with keyed(server) as k:
        key = await k.key("admin")
        first = await k.token(key)
        status, done = await k.ask("POST", "/v1/secrets/access/rotate", bearer(first), {})
        assert (status, done) == (200, {"kind": "access", "kid": "2", "dropped": []})
        second = await k.token(key)
        assert [jwt.get_unverified_header(token)["kid"] for token in (first, second)] == ["1", "2"]
        for token in (first, second):
            assert (await k.ask("POST", "/v1/lives/x/text", bearer(token), {}, at="infer"))[0] == 404, "known elsewhere"
        assert (await k.ask("POST", "/v1/secrets/access/rotate", bearer(second), {}))[1]["dropped"] == ["1"]
        third = await k.token(key)
        dropped = (await k.ask("POST", "/v1/secrets/access/rotate", bearer(third), {"drop_old": True}))[1]["dropped"]
        assert dropped == ["2", "3"]
        for token in (first, second, third):
            assert (await k.ask("GET", "/v1/lives", bearer(token)))[0] == 401
        assert (await k.ask("GET", "/v1/lives", bearer(await k.token(key))))[0] == 200


async def test_each_key_has_its_rate(server: Address) -> None:
    async with keyed(server, key_rate_per_s=1_000) as k:
        slow, fast = await k.key("app", rate_per_s=3), bearer(await k.token(await k.key("app")))
        token = bearer(await k.token(slow))  # One of three.
        statuses = [(await k.ask("GET", "/v1/lives", token))[0] for _ in range(4)]
        assert statuses[:2] == [200, 200] and 429 in statuses[2:]
        async with k.api.client.get("/v1/lives", headers=token) as response:
            if response.status == 429:  # A slow machine may have filled the bucket again.
                assert int(response.headers["Retry-After"]) >= 1
                assert "3 requests a second" in (await response.json())["detail"]
        assert [(await k.ask("GET", "/v1/lives", fast))[0] for _ in range(20)] == [200] * 20


async def test_a_remembered_token_is_not_computed_again(server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    async with keyed(server) as k:
        shown = await k.role("app")
        assert (await k.ask("GET", "/v1/lives", shown))[0] == 200
        monkeypatch.setattr("dhsched.access.api_tokens.verify", lambda *_: pytest.fail("computed again"))
        assert (await k.ask("GET", "/v1/lives", shown))[0] == 200
        monkeypatch.undo()
        monkeypatch.setattr(k.gate, "_clock", lambda: 4e9)
        assert (await k.ask("GET", "/v1/lives", shown))[0] == 200, "asked anew, by the clock of the library"


# -- Workers


async def test_a_worker_with_a_key_is_given_lives_and_input(server: Address, tmp_path: Path) -> None:
    record = Record()
    async with keyed(server) as k:
        admin, app = await k.role("admin"), await k.role("app", tenant="acme")
        key = await k.key("worker", names="gpu-*", pool="gpu", capacity_max=2)
        await k.configure(admin)
        await k.announce()
        async with k.worker(tmp_path, record, key=key):
            body = {"digital_id": "anna", "live_id": "L"}
            assert (await k.ask("POST", "/v1/lives?wait_s=20", app, body))[0] == 201
            assert (await k.ask("POST", "/v1/lives/L/text", app, {"text": "hello"}, at="infer"))[0] == 200
            await until(lambda: [one.text for one in record.consumed] == ["hello"], "the item")


REFUSED = [
    ({"name": "cpu-1"}, "named gpu-*"),
    ({"pool": "other"}, "of Pool gpu"),
    ({"capacity": 3}, "capacity 2 at most"),
]


@pytest.mark.parametrize(("changed", "said"), REFUSED)
async def test_a_key_registers_only_what_it_may(server: Address, changed: dict[str, Any], said: str) -> None:
    async with keyed(server) as k:
        shown = await k.role("worker", names="gpu-*", pool="gpu", capacity_max=2)
        asked = {"name": "gpu-1", "boot": "b1", "pool": "gpu", "capacity": 2, **changed}
        assert said in await k.refusal(shown, Register(**asked))


async def test_nobody_ends_or_becomes_somebody_elses_worker(server: Address) -> None:
    async with keyed(server) as k:
        store = k.api.context.store
        theirs = (await store.register_worker(name="theirs", boot="secret", pool="gpu", capacity=2)).worker
        shown = await k.role("worker", names="gpu-*", pool="gpu")
        register = Register(name="gpu-1", boot="b1", pool="gpu", capacity=2, replaces=theirs)
        assert "would replace" in await k.refusal(shown, register)
        register = Register(name="gpu-1", boot="secret", pool="gpu", capacity=2)
        assert "is not of a Worker named gpu-1" in await k.refusal(shown, register)
        found = await k.api.context.records.workers.get(theirs)
        assert found is not None and not found[0].gone
        tokens = Tokens(k.ring)
        mine = tokens.issue(Boot("gpu-1#9", "b", "gpu-1", "gpu", 2))
        other = tokens.issue(Boot(theirs, "secret", "theirs", "gpu", 2))
        assert "another boot's" in await k.refusal(bearer(mine), Resume(other))
        register = Register(name="gpu-2", boot="b2", pool="gpu", capacity=2)
        assert "does not register others" in await k.refusal(bearer(mine), register)


async def test_a_worker_without_a_key_stays_outside(
    server: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_link, "REFUSED_MAX_S", 0.5)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with keyed(server) as k:
        async with k.worker(tmp_path, Record()) as task:
            with pytest.raises(KeyRefused, match="DHSCHED_WORKER_KEY"):
                await asyncio.wait_for(task, PATIENCE_S)
        assert (await k.api.context.records.fleet.snapshot()).workers == ()


# -- where to listen


def test_listening_elsewhere_needs_keys_or_a_word() -> None:
    with pytest.raises(BadSetting, match="dhsched key create"):
        DispatchSettings(host="0.0.0.0", access="open")
    with pytest.raises(BadSetting, match="every address"):
        DispatchSettings(host="", access="open")
    with pytest.raises(BadSetting, match="without TLS"):
        DispatchSettings(host="0.0.0.0")
    assert DispatchSettings(host="0.0.0.0", tls_cert="x.pem", tls_key="x.key").access == "keys"
    assert DispatchSettings(host="::1", access="open") and DispatchSettings(host="10.0.0.5", insecure=True)
    open_to_all = DispatchSettings(host="0.0.0.0", access="open", insecure=True)
    with pytest.raises(BadSetting, match="tls_key is not"):
        replace(open_to_all, tls_cert="x.pem")
