"""A web page of another origin can do nothing to a deployment that asks nobody for a key, on any role.

What a browser says of itself (Origin, Sec-Fetch-Site, Host, Content-Type) is sent here by hand; what a real one does is
in tests/browser/test_other_origins.py.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from dhsched.dispatch import passing
from dhsched.dispatch.app import Replica
from dhsched.infer.settings import InferSettings
from dhsched.room.settings import RoomSettings
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from tests.harness.fleet import Record
from tests.harness.keyed import keyed
from tests.harness.theatre import Theatre, theatre

EVIL = "http://evil.example"
APP = "https://app.example"
SOCKETS = {
    "dispatch": ["/v1/workers/link"],
    "infer": ["/v1/pull", "/v1/lives/demo/stream", "/v1/stream"],
    "room": ["/v1/publish"],
}
PLAIN = {
    "dispatch": [("GET", "/metrics"), ("GET", "/healthz"), ("POST", "/nowhere")],
    "infer": [("GET", "/v1/lives/demo/events"), ("GET", "/readyz")],
    "room": [("POST", "/v1/lives/demo/whep"), ("DELETE", "/v1/lives/demo/whep/x"), ("GET", "/page/live.js")],
}


@asynccontextmanager
async def roles(folder: Path, **settings: Any) -> AsyncIterator[tuple[Theatre, dict[str, str]]]:
    async with theatre(folder, replica=settings, **settings) as at:
        await at.fleet.start_worker(Record(), "a")
        await at.fleet.create("demo")
        yield at, {"dispatch": at.fleet.dispatch[0], "infer": at.fleet.infer[0], "room": at.url}


async def operations(http: aiohttp.ClientSession, role: str, url: str) -> list[tuple[str, str]]:
    """Every method and path that the role serves."""
    async with http.get(f"{url}/openapi.json") as response:
        paths = (await response.json())["paths"]
    found = [(method.upper(), re.sub(r"{\w+}", "demo", path)) for path in paths for method in paths[path]]
    return [*found, *PLAIN[role], *(("GET", path) for path in SOCKETS[role])]


async def asked(http: aiohttp.ClientSession, method: str, url: str, **headers: str) -> tuple[int, str]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.request(method, url, headers=given) as response:
        return response.status, (await response.json(content_type=None)).get("code")


async def test_another_origin_is_refused_everywhere(tmp_path: Path) -> None:
    async with roles(tmp_path) as (at, urls):
        for role, url in urls.items():
            every = await operations(at.fleet.http, role, url)
            assert len(every) > 4
            for method, path in every:
                for origin in (EVIL, "null", "http://127.0.0.1:1", url.replace("127.0.0.1", "localhost"), APP):
                    found = await asked(at.fleet.http, method, url + path, Origin=origin)
                    assert found == (403, "ORIGIN"), (role, method, path, origin)
                for site in ("cross-site", "same-site"):
                    said = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors"}
                    found = await asked(at.fleet.http, method, url + path, **said)
                    assert found == (403, "ORIGIN"), (role, method, path, site)
            for path in SOCKETS[role]:
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await at.fleet.http.ws_connect(url + path, headers={"Origin": EVIL})
                assert refused.value.status == 403, path
        async with at.fleet.http.post(urls["dispatch"] + "/v1/keys", headers={"Origin": EVIL}) as response:
            said = (await response.json())["detail"]
        assert EVIL in said and "allowed_origins" in said, "it names the remedy"
        assert (await at.fleet.get("/v1/keys"))["keys"] == []


async def test_a_name_that_is_not_ours_is_refused_everywhere(tmp_path: Path) -> None:
    """As of a page whose name was pointed at this machine after it was loaded: to the browser it is one origin."""
    async with roles(tmp_path) as (at, urls):
        for role, url in urls.items():
            port = urlsplit(url).port
            for method, path in await operations(at.fleet.http, role, url):
                name = f"evil.example:{port}"
                for headers in ({"Host": name}, {"Host": name, "Origin": f"http://{name}"}):
                    assert await asked(at.fleet.http, method, url + path, **headers) == (403, "HOST"), (role, path)
            long = "a" * 300 + ".localhost"
            for name in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "a b", "[::1", "", long):
                assert (await asked(at.fleet.http, "GET", url + "/healthz", Host=name))[0] == 403, name
            for name in ("localhost", "LOCALHOST:1", "demo.localhost", "127.0.0.1", f"[::1]:{port}", "192.168.1.7:80"):
                assert (await asked(at.fleet.http, "GET", url + "/healthz", Host=name))[0] == 200, name


async def test_its_own_pages_and_those_that_are_allowed_go_on(tmp_path: Path) -> None:
    async with roles(tmp_path, allowed_origins=f"{APP}, http://other.example:81") as (at, urls):
        http = at.fleet.http
        for url in urls.values():
            host = urlsplit(url).netloc
            for ours in (host, f"localhost:{urlsplit(url).port}", f"192.168.1.7:{urlsplit(url).port}"):
                assert (await asked(http, "GET", url + "/healthz", Host=ours, Origin=f"http://{ours}"))[0] == 200
            # As it looks behind something that speaks TLS for it.
            assert (await asked(http, "GET", url + "/healthz", Host="app.example", Origin=APP))[0] == 200
            assert (await asked(http, "GET", url + "/healthz", Host="app.example:443", Origin=APP))[0] == 200
            for site, mode in (("none", "navigate"), ("same-origin", "cors"), ("cross-site", "navigate")):
                found = await asked(http, "GET", url + "/healthz", Sec_Fetch_Site=site, Sec_Fetch_Mode=mode)
                assert found[0] == 200, "a link on another page may lead here"
            async with http.get(url + "/healthz", headers={"Origin": APP}) as response:
                assert response.status == 200 and response.headers["Access-Control-Allow-Origin"] == APP
                assert response.headers["Vary"] == "Origin"
            asks = {"Origin": APP, "Access-Control-Request-Method": "POST"}
            async with http.options(url + "/v1/lives/demo/text", headers=asks) as response:
                assert response.status == 204 and "POST" in response.headers["Access-Control-Allow-Methods"]
                allowed = {name.strip().lower() for name in response.headers["Access-Control-Allow-Headers"].split(",")}
                assert {"authorization", *(name.lower() for name in passing.PASSED)} - allowed == {"accept"}
                methods = {each.strip() for each in response.headers["Access-Control-Allow-Methods"].split(",")}
                endpoints = Replica(at.fleet.replicas[0]).endpoints()
                assert {endpoint.method for endpoint in endpoints} <= methods, "a page may use the whole API"
            async with http.options(url + "/v1/lives/demo/text", headers={**asks, "Origin": EVIL}) as response:
                assert response.status == 403 and "Access-Control-Allow-Origin" not in response.headers
        text = {"text": "hello"}
        async with http.post(at.path("text"), json=text, headers={"Origin": at.url}) as response:
            assert response.status == 200
        async with http.post(at.path("text"), json=text, headers={"Origin": "http://other.example:81"}) as response:
            assert response.status == 200
        async with http.ws_connect(urls["infer"] + "/v1/lives/demo/stream", headers={"Origin": APP}) as socket:
            assert not socket.closed


async def test_a_body_is_json_or_refused(tmp_path: Path) -> None:
    """What a form, or a script without asking first, can send from any page is not even looked at."""
    async with roles(tmp_path) as (at, urls):
        for url, body in (
            (f"{urls['dispatch']}/v1/keys", '{"role": "admin"}'),
            (f"{urls['dispatch']}/v1/workers/a%231/cordon", "{}"),
            (f"{urls['infer']}/v1/lives/demo/text", '{"text": "x"}'),
            (f"{urls['room']}/v1/lives/demo/text", '{"text": "x"}'),
            (f"{urls['dispatch']}/v1/lives/demo/end", "{}"),
        ):
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
                async with at.fleet.http.post(url, data=body, headers={"Content-Type": kind}) as response:
                    problem = await response.json(content_type=None)
                assert (response.status, problem["code"]) == (415, "MEDIA_TYPE"), (url, kind)
                assert "application/json" in problem["detail"]
            kind = "application/json; charset=utf-8"
            async with at.fleet.http.post(url, data=body, headers={"Content-Type": kind}) as response:
                assert response.status in (200, 201), (url, await response.text())


async def test_with_keys_a_proxy_may_call_it_what_it_likes(server: Address) -> None:
    """A page gains nothing by another name where it has no key; it still may not come from elsewhere."""
    async with keyed(server, allowed_origins=APP) as k:
        shown = await k.role("app")
        for at in ("dispatch", "infer"):
            host = {"Host": "dhsched.example"}
            assert (await k.ask("GET", "/healthz", host, at=at))[0] == 200
            assert (await k.ask("GET", "/healthz", {**host, "Origin": EVIL}, at=at))[0] == 403
            asks = {"Origin": APP, "Access-Control-Request-Method": "GET"}
            async with k.clients[at].options("/v1/lives", headers=asks) as response:
                assert response.status == 204, "a browser asks this without the token"
        assert (await k.ask("GET", "/v1/lives", {**shown, "Host": "dhsched.example"}))[0] == 200
        assert (await k.ask("GET", "/v1/lives", {**shown, "Origin": APP}))[0] == 200
        status, problem = await k.ask("GET", "/v1/lives", {**shown, "Origin": EVIL})
        assert (status, problem["code"]) == (403, "ORIGIN") and "d1" not in str(problem), "nor is our name said"


@pytest.mark.parametrize("kind", [DispatchSettings, InferSettings, RoomSettings])
@pytest.mark.parametrize("origin", ["app.example", "https://app.example/page", "*", "null", "ftp://x", "https://"])
def test_an_allowed_origin_is_one(kind: Any, origin: str) -> None:
    from dhsched.errors import BadSetting

    with pytest.raises(BadSetting, match="allowed_origins"):
        kind(allowed_origins=f"https://fine.example,{origin}")
