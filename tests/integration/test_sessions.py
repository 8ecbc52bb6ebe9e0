"""Sessions of browsers: a cookie that counts only where the browser says that its own page sent the request."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import Any

import aiohttp
import pytest

from dhsched.access.sessions import COOKIE, COOKIES_CHARS_MAX, cookie, session_of
from dhsched.store.link.address import Address
from tests.harness.keyed import Keyed, bearer, keyed

SAME = {"Sec-Fetch-Site": "same-origin"}


async def begun(k: Keyed, key: str, **body: Any) -> tuple[str, dict[str, Any]]:
    """The cookie's header, and what it may do."""
    async with k.clients["dispatch"].post("/v1/session", json=body, headers=bearer(key)) as response:
        assert response.status == 200, await response.text()
        set_cookie = response.headers["Set-Cookie"]
        assert "HttpOnly" in set_cookie and "SameSite=Strict" in set_cookie
        found: dict[str, Any] = await response.json()
        assert "token" not in found
        return f"{COOKIE}={SimpleCookie(set_cookie)[COOKIE].value}", found


async def asked(k: Keyed, method: str, path: str, **headers: str) -> int:
    """By a client that keeps no cookies of its own."""
    url = k.clients["dispatch"].make_url(path)
    body: dict[str, Any] | None = {} if method == "PUT" else None
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http,
        http.request(method, url, headers=headers, json=body) as response,
    ):
        return response.status


async def test_a_session_does_what_its_key_may_and_no_more(server: Address) -> None:
    async with keyed(server) as k:
        key = await k.key("operator")
        shown, found = await begun(k, key)
        assert (found["role"], found["expires_in_s"]) == ("operator", 900) and "fleet:write" in found["scopes"]
        headers = {**SAME, "Cookie": f"other=1; {shown}"}
        assert await asked(k, "GET", "/v1/workers", **headers) == 200
        assert await asked(k, "PUT", "/v1/pools/gpu", **headers) == 403
        narrow, _ = await begun(k, key, scopes=["metrics:read"])
        assert await asked(k, "GET", "/v1/workers", **SAME, Cookie=narrow) == 403
        await k.ring.revoke(key.split("_")[1])
        await k.ring.read()
        assert await asked(k, "GET", "/v1/workers", **headers) == 401


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "Same-Origin"])
async def test_a_session_is_worth_nothing_to_other_pages(server: Address, site: str) -> None:
    async with keyed(server) as k:
        shown, _ = await begun(k, await k.key("admin"))
        given = {"Sec-Fetch-Site": site} if site else {}
        assert await asked(k, "GET", "/v1/workers", **given, Cookie=shown) in (401, 403)
        assert await asked(k, "PUT", "/v1/pools/gpu", **given, Cookie=shown) in (401, 403)
        assert (await k.ask("GET", "/v1/pools", await k.role("admin")))[1]["pools"] == []


async def test_a_session_renews_nothing_and_ends(server: Address) -> None:
    async with keyed(server) as k:
        shown, _ = await begun(k, await k.key("reader"))
        assert await asked(k, "POST", "/v1/session", **SAME, Cookie=shown) == 401
        assert await asked(k, "POST", "/v1/tokens", **SAME, Cookie=shown) == 401
        async with k.clients["dispatch"].delete("/v1/session") as response:
            assert response.status == 204 and f"{COOKIE}=; Max-Age=0" in response.headers["Set-Cookie"]


def test_a_header_counts_before_a_session_and_a_long_one_is_not_searched() -> None:
    given = {**SAME, "Cookie": f"{COOKIE}=abc"}
    assert session_of(given) == "abc" == session_of({**given, "Sec-Fetch-Site": "none"})
    assert session_of({**given, "Cookie": f"x{COOKIE}=abc; {COOKIE}x=abc"}) == ""
    assert session_of({**given, "Cookie": f"a={'x' * COOKIES_CHARS_MAX}; {COOKIE}=abc"}) == ""
    assert (
        session_of({}) == ""
        and "Secure" in cookie("t", 1, secure=True)
        and "Secure" not in cookie("t", 1, secure=False)
    )
