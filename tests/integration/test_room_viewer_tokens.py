"""A room lets nobody watch, type or interrupt without a viewer token for that live and with that grant."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jwt
import pytest

from dhsched.access.api_tokens import LEEWAY_S
from dhsched.access.ring import new_secret
from dhsched.access.viewer_tokens import public_text, sign
from dhsched.access.viewers import GRANTS, Viewer
from dhsched.client import Client
from dhsched.room import rooms, viewer_gate
from tests.harness.fleet import until, until_so
from tests.harness.keyed import bearer
from tests.harness.theatre import SDP, Theatre, Watcher, idle, theatre

ALL = frozenset(GRANTS)


@asynccontextmanager
async def house(folder: Path, **settings: Any) -> AsyncIterator[Theatre]:
    """A room that asks for tokens, and a live, `demo`."""
    async with theatre(
        folder, **{"access": "keys", "viewer_rate_per_s": 100, "live_rate_per_s": 100, **settings}
    ) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        yield at


def secret(at: Theatre, kid: str = "1") -> str:
    return at.fleet.replicas[0].ring.secrets("viewer")[kid]


def made(at: Theatre, viewer: Viewer, *, kid: str = "1", **given: Any) -> str:
    """A token that Dispatch could have signed."""
    return sign(viewer, **{"kid": kid, "secret": secret(at, kid), "ttl_s": 60, **given})


async def everything(at: Theatre, token: str | None, live: str = "demo") -> dict[str, tuple[int, str]]:
    """Whatever a viewer does, tried with this token: status and code."""
    headers, found = bearer(token) if token is not None else {}, {}
    calls: dict[str, tuple[str, str, dict[str, Any]]] = {
        "state": ("GET", "state", {}),
        "whep": ("POST", "whep", {"data": "v=0", "headers": {**SDP, **headers}}),
        "leave": ("DELETE", "whep/nobody", {}),
        "renew": ("POST", "whep/nobody/token", {}),
        "captions": ("GET", "whep/nobody/captions", {}),
        "say": ("POST", "text", {"json": {"text": "hello"}}),
        "interrupt": ("POST", "text", {"json": {"kind": "interrupt"}}),
    }
    for name, (method, path, given) in calls.items():
        url = f"{at.url}/v1/lives/{live}/{path}"
        async with at.fleet.http.request(method, url, **{"headers": headers, **given}) as response:
            assert response.status != 401 or response.headers["WWW-Authenticate"] == "Bearer"
            found[name] = (response.status, (await response.json()).get("code", ""))
    return found


async def test_without_a_viewer_token_nothing_is_shown_or_taken(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        for token in (None, "", "x", "a.b.c", "dhk_0_1"):
            assert set((await everything(at, token)).values()) == {(401, "UNAUTHORIZED")}, token
        # A live that does not exist is refused in the same way.
        assert set((await everything(at, None, "none")).values()) == {(401, "UNAUTHORIZED")}
        for path in ("/live/demo", "/page/live.js", "/healthz"):
            async with at.fleet.http.get(at.url + path) as response:
                assert response.status == 200 and "demo" not in await response.text(), "the same for everybody"
        good = await everything(at, await at.viewer_token())
        assert good == {
            "state": (200, ""),
            "whep": (400, "BAD_REQUEST"),
            "leave": (404, "NOT_FOUND"),
            "renew": (404, "NOT_FOUND"),
            "captions": (404, "NOT_FOUND"),
            "say": (200, ""),
            "interrupt": (200, ""),
        }


async def test_a_viewer_token_of_a_hostile_maker_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        good = await at.viewer_token()
        header, claims = jwt.get_unverified_header(good), jwt.decode(good, options={"verify_signature": False})

        def forged(head: dict[str, Any], body: dict[str, Any], key: bytes = b"") -> str:
            parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, body)]
            mac = hmac.digest(key, b".".join(parts), hashlib.sha256) if key else b""
            return b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()

        public = public_text(secret(at))
        raw = base64.urlsafe_b64decode(public + "=")
        ring, viewer, now = at.fleet.replicas[0].ring, Viewer("default/demo", ALL), time.time()
        boot = ring.secrets("boot")["1"]
        refused = {
            "none": forged({**header, "alg": "none"}, claims),
            "HS256 with the public key": forged({**header, "alg": "HS256"}, claims, raw),
            "HS256 with its text": forged({**header, "alg": "HS256"}, claims, public.encode()),
            "another's key": made(at, viewer, secret=new_secret()),
            "the boot secret": made(at, viewer, secret=boot),
            "expired": made(at, viewer, now=now - 60 - LEEWAY_S - 1),
            "not yet": made(at, viewer, now=now + LEEWAY_S + 60),
            "too long": made(at, viewer, ttl_s=10**8),
            "an unknown key": made(at, viewer, kid="1", secret=new_secret()).replace("eyJ", "eyK", 1),
            "a publish token": at.publish("a#1", 1).token,
        }
        for name, token in refused.items():
            assert set((await everything(at, token)).values()) == {(401, "UNAUTHORIZED")}, name
        assert (await everything(at, made(at, viewer)))["state"][0] == 200, "the same, rightly made"


async def test_a_viewer_token_is_for_one_live_and_its_grants(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        await at.fleet.create("other")
        other = await at.viewer_token("other")
        assert set((await everything(at, other)).values()) == {(403, "FORBIDDEN")}
        assert set((await everything(at, made(at, Viewer("acme/demo", ALL)))).values()) == {(403, "FORBIDDEN")}
        assert (await everything(at, other, "other"))["state"][0] == 200

        only = {grant: await at.viewer_token(grants=[grant]) for grant in GRANTS}
        needs = {"state": "watch", "whep": "watch", "leave": "watch", "renew": "watch", "captions": "watch"}
        for grant, token in only.items():
            for name, (status, _) in (await everything(at, token)).items():
                assert (status != 403) == (needs.get(name, name) == grant), (grant, name, status)
        # An interrupt may carry text to go on with: that is to say something.
        item = {"kind": "interrupt", "text": "hello"}
        for token, status in ((only["interrupt"], 403), (await at.viewer_token(), 200)):
            async with at.fleet.http.post(at.path("text"), json=item, headers=bearer(token)) as response:
                assert response.status == status
        state = await at.state(only["watch"])
        assert not state["may_say"] and not state["may_interrupt"]


async def test_a_viewer_token_says_who_said_it_and_how_often(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        zoe = await at.viewer_token(identity="Zoë", say_rate_per_s=0.01, interrupt_rate_per_s=0.01)
        ben = await at.viewer_token(identity="Ben")
        watcher = Watcher()
        await watcher.connect(at, token=zoe)

        async def say(token: str, **item: Any) -> int:
            async with at.fleet.http.post(at.path("text"), json=item, headers=bearer(token)) as response:
                return response.status

        assert [await say(zoe, text="one"), await say(zoe, text="two")] == [200, 429]
        assert [await say(ben, text="three"), await say(ben, text="four", request_id="r")] == [200, 200], (
            "another's rate"
        )
        assert await say(ben, text="four", request_id="r") == 200, "the same item again"
        assert [await say(zoe, kind="interrupt"), await say(zoe, kind="interrupt")] == [200, 429]
        state = await at.state(zoe)
        said = [(each["identity"], each["kind"], each["seq"]) for each in state["said"]]
        assert said == [("Zoë", "text", 1), ("Ben", "text", 2), ("Ben", "text", 3), ("Zoë", "interrupt", 4)]
        # The app is told the same in the live's events, without the text.
        told: list[tuple[str, str, int]] = []
        async with Client(at.fleet.dispatch, at.fleet.infer) as client:
            async for event in client.events("demo"):
                if event.name == "said":
                    told.append((event.data["identity"], event.data["kind"], event.data["seq"]))
                    if len(told) == 4:
                        assert await say(ben, text="five") == 200
                    if len(told) == 5:
                        break
        assert told == [*said, ("Ben", "text", 5)], "each once"
        assert state["identity"] == "Zoë" and state["expires_at_ms"] > time.time() * 1000
        await watcher.close()


async def test_a_connection_ends_with_its_viewer_token(tmp_path: Path) -> None:
    """Unless another token was shown in time."""
    async with house(tmp_path) as at:
        room = at.room.rooms.room("default/demo")
        stays, goes = Watcher(), Watcher()
        for watcher in (stays, goes):
            await watcher.connect(at, token=await at.viewer_token(ttl_s=60))
        first, second = at.room.rooms.places.all
        assert first.viewer.until - time.time() < 60 + LEEWAY_S
        longer = bearer(await at.viewer_token(ttl_s=600))
        async with at.fleet.http.post(f"{at.url}{stays.location}/token", headers=longer) as response:
            assert response.status == 204
        assert first.viewer.until - second.viewer.until > 500, "it lasts as long as the new one"
        for refused in (await at.viewer_token(grants=["say"]), "x", made(at, Viewer("default/other", ALL))):
            async with at.fleet.http.post(f"{at.url}{goes.location}/token", headers=bearer(refused)) as response:
                assert response.status in (401, 403)
        room.viewers[goes.location.rpartition("/")[2]].renew(replace(second.viewer, until=time.time()))  # Time passes.
        await until(lambda: len(room.viewers) == 1, "the token to expire")
        assert [*room.viewers] == [stays.location.rpartition("/")[2]] and at.room.rooms.places.all == [first]
        await stays.close()
        await goes.close()


async def test_rotating_the_key_ends_what_viewer_tokens_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "KEYS_S", 0.1)
    monkeypatch.setattr(viewer_gate, "REREAD_MIN_S", 0.01)
    async with house(tmp_path) as at:
        ring, room = at.fleet.replicas[0].ring, at.room.rooms.room("default/demo")
        old, watcher = await at.viewer_token(), Watcher()
        await watcher.connect(at, token=old)
        await ring.rotate("viewer")
        # The room has not read the new key: it does when it sees it.
        assert (await everything(at, await at.viewer_token()))["state"][0] == 200
        assert (await everything(at, old))["state"][0] == 200 and len(room.viewers) == 1
        await ring.rotate("viewer", drop_old=True)
        await until(lambda: not room.viewers, "the viewer of a dropped key to be disconnected")
        assert set((await everything(at, old)).values()) == {(401, "UNAUTHORIZED")}
        assert (await everything(at, await at.viewer_token()))["state"][0] == 200
        await watcher.close()


async def test_known_viewer_tokens_hold_while_dispatch_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "KEYS_S", 0.05)
    monkeypatch.setattr(viewer_gate, "REREAD_MIN_S", 0.01)
    async with house(tmp_path, deadline_s=0.5) as at:
        token, upstream = await at.viewer_token(), at.room.rooms.upstream
        assert (await at.state(token))["owner"]
        monkeypatch.setattr(upstream._dispatch, "urls", ("http://127.0.0.1:1",))
        monkeypatch.setattr(
            upstream._dispatch, "_minters", {"http://127.0.0.1:1": next(iter(upstream._dispatch._minters.values()))}
        )
        monkeypatch.setattr(upstream._dispatch, "_at", 0)
        await until_so(lambda: at.state(token), lambda state: state["owner"] is None, "Dispatch to be away")
        # A key that the room does not know may be a new one: it cannot tell.
        unknown = jwt.encode({}, b"x" * 32, algorithm="HS256", headers={"kid": "7"})
        assert (await everything(at, unknown))["state"] == (503, "NOT_READY")
        assert (await everything(at, "x"))["state"][0] == 401


async def test_many_unknown_keys_are_asked_about_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile caller names keys that are not: Dispatch is asked once a second at most, for all of them."""
    async with house(tmp_path) as at:
        await at.state(await at.viewer_token())
        asked_at: list[float] = []
        real = at.room.rooms.upstream.viewer_keys

        async def noted(kid: str) -> Any:
            if kid:  # The loop's own reads name no key.
                asked_at.append(time.monotonic())
            return await real(kid)

        monkeypatch.setattr(at.room.rooms.upstream, "viewer_keys", noted)

        async def ask(kid: int) -> int:
            token = jwt.encode({}, b"x" * 32, algorithm="HS256", headers={"kid": str(kid)})
            async with at.fleet.http.get(at.path("state"), headers=bearer(token)) as response:
                return response.status

        assert {*await asyncio.gather(*(ask(kid) for kid in range(2, 52)))} == {401}
        assert {*await asyncio.gather(*(ask(kid) for kid in range(2, 52)))} == {401}
        gaps = [after - before for before, after in pairwise(asked_at)]
        assert gaps and min(gaps) > viewer_gate.REREAD_MIN_S * 0.9
