"""A page of another origin: another name of this machine, another port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def page_elsewhere(text: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """Serve one page; yield its origin."""

    async def respond(_request: web.Request) -> web.Response:
        return web.Response(text=text, content_type="text/html", headers=headers)

    app = web.Application()
    app.router.add_get("/", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
