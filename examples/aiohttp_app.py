"""A Worker inside a program that serves HTTP: its pages and the lives share one process and one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from aiohttp import web

from dhsched.worker import Session, Worker, WorkerOptions

SPOKEN: web.AppKey[list[str]] = web.AppKey("spoken", list)


def make_app(**options: Unpack[WorkerOptions]) -> web.Application:
    app = web.Application()
    spoken = app[SPOKEN] = []

    async def speaks(session: Session) -> None:
        async for item in session.inputs():
            spoken.append(item.text)

    async def with_worker(app: web.Application) -> AsyncIterator[None]:
        async with Worker(speaks, **options) as worker:
            await worker.registered()
            yield  # The program serves. When it stops, the Worker drains.

    async def show(request: web.Request) -> web.Response:
        return web.json_response(request.app[SPOKEN])

    app.cleanup_ctx.append(with_worker)
    app.router.add_get("/spoken", show)
    return app


if __name__ == "__main__":
    web.run_app(make_app(pool="gpu", capacity=4, drain_s=30), port=8080)
