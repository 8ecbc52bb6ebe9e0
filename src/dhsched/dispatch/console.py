"""The web console at `/console`: its page and files. What it shows comes from the API, with the reader's own token."""

from __future__ import annotations

import msgspec
from aiohttp import web

from dhsched.web.pages import Page


def console_routes(room: str) -> list[web.RouteDef]:
    """Return the routes of the console. Nobody may embed the page: its buttons end lives. `room` is the URL of the room
    whose page it may embed, which shows the picture of a live; empty for none."""
    made = {"room.json": msgspec.json.encode({"url": room})}
    page = Page("dhsched.dispatch", "page", ancestors="'none'", frames=room, made=made)

    async def index(_request: web.Request) -> web.Response:
        return page.respond("console.html")

    return [web.get("/console", index, name="console_page"), web.get("/console/{name}", page.file, name="console_file")]
