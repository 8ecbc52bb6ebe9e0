"""The room and pages of other origins: who may embed its page, and who may call it with a viewer token."""

from __future__ import annotations

from pathlib import Path

import pytest

from dhsched.errors import BadSetting
from dhsched.room.settings import RoomSettings
from tests.harness.keyed import bearer
from tests.harness.theatre import Theatre, idle, theatre

APP, EVIL = "https://app.example", "https://evil.example"


async def policy(at: Theatre, path: str) -> dict[str, str]:
    async with at.fleet.http.get(at.url + path) as response:
        assert response.status == 200
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
        parts = response.headers["Content-Security-Policy"].split("; ")
    return {part.partition(" ")[0]: part.partition(" ")[2] for part in parts}


async def test_which_origin_may_embed_the_page(tmp_path: Path) -> None:
    for given, wanted in (("", "'self'"), (f"{APP}, http://localhost:3000", f"'self' {APP} http://localhost:3000")):
        async with theatre(tmp_path, frame_ancestors=given) as at:
            for path in ("/live/demo", "/page/live.js", "/page/token.js"):
                found = await policy(at, path)
                assert found["frame-ancestors"] == wanted and found["default-src"] == "'none'"
                assert found["script-src"] == "'self'" == found["connect-src"]


@pytest.mark.parametrize(
    "wrong", ["app.example", "https://app.example/x", "*", "'none'", "https://a;script-src", "ftp://a"]
)
def test_who_may_embed_the_page_is_an_origin(wrong: str) -> None:
    with pytest.raises(BadSetting, match="frame_ancestors"):
        RoomSettings(frame_ancestors=wrong)


async def test_a_viewer_token_does_not_open_the_room_to_another_origin(tmp_path: Path) -> None:
    async with theatre(tmp_path, access="keys", allowed_origins=APP) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        shown = bearer(await at.viewer_token())
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
        for origin, status in ((APP, 200), (EVIL, 403), (at.url, 200)):
            async with at.fleet.http.post(
                at.path("text"), json={"text": "hello"}, headers={**shown, "Origin": origin}
            ) as response:
                assert response.status == status and response.headers.get("Access-Control-Allow-Origin") == (
                    APP if origin == APP else None
                )
        async with at.fleet.http.options(at.path("whep"), headers={**asks, "Origin": APP}) as response:
            assert response.status == 204 and "Authorization" in response.headers["Access-Control-Allow-Headers"]
        # Where tokens are needed, any name is answered to: a page that was pointed here by its name has no token.
        for host in ("room.example", "evil.example:7402"):
            async with at.fleet.http.get(at.path("state"), headers={"Host": host}) as response:
                assert response.status == 401
            async with at.fleet.http.get(at.path("state"), headers={**shown, "Host": host}) as response:
                assert response.status == 200
