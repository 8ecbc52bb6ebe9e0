"""One Infer-Controller: build its parts, serve, announce its address to the Workers, and stop.

A controller holds only caches, and any number of controllers serve one deployment. When a controller is killed, its
Workers pull from another one, and its clients connect again. A controller that is cut off from the store releases
nothing, because only the store releases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from dhsched.access.development import development_key, noted
from dhsched.access.ring import KeyRing, open_ring
from dhsched.errors import BadSetting
from dhsched.infer import events, push, stream
from dhsched.infer.cell import InferCell, open_in_cell, open_shared, open_store, why_not_ready
from dhsched.infer.cells import open_cells
from dhsched.infer.settings import InferSettings
from dhsched.input_routes import RAW
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.store.link.address import parse_address
from dhsched.store.steps.scripts import Script
from dhsched.web import MINT, make_app, serve_role


@dataclass(slots=True)
class Infer(InferCell):
    """A controller of the only cell, ready to be served."""

    app: web.Application
    ring: KeyRing


@asynccontextmanager
async def open_infer(
    settings: InferSettings, *, limits: Limits = DEFAULT_LIMITS, scripts: Mapping[str, Script] | None = None
) -> AsyncIterator[Infer]:
    """Connect to the store of the only cell and yield a controller to serve. `scripts` replaces the steps' scripts, for
    measurements."""
    if settings.store is None:
        raise BadSetting("an Infer-Controller needs the store that Dispatch uses; give --store URL or DHSCHED_STORE")
    address = parse_address(settings.store)
    opening = open_store(address, settings.cell, settings, cells=[settings.cell], limits=limits, scripts=scripts)
    async with opening as (store, records), AsyncExitStack() as stack:

        async def ready() -> Sequence[str]:
            return [trouble] if (trouble := why_not_ready(store)) else []

        shared = await stack.enter_async_context(
            open_shared(settings, await open_ring(store.link, store.keys), ready=ready)
        )
        service = shared.service
        cell = await open_in_cell(store, records, shared, registry=service.registry)
        raw = [*cell.pull_text.routes(), *stream.routes(cell.context), *events.routes(cell.context)]
        app = make_app(service, [*push.endpoints(cell.context), MINT], raw, RAW)
        app.on_shutdown.append(shared.connections.close_sockets)
        yield Infer(cell.context, cell.pull_text, app, shared.ring)


async def run_infer(
    settings: InferSettings,
    stop: asyncio.Event,
    *,
    limits: Limits = DEFAULT_LIMITS,
    scripts: Mapping[str, Script] | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Run one controller until `stop` is set."""
    opened = (
        open_cells(settings, limits=limits) if settings.cells else open_infer(settings, limits=limits, scripts=scripts)
    )
    async with opened as infer:
        announced: list[asyncio.Task[None]] = []
        served = asyncio.Event()

        def listening(url: str) -> None:
            announced.append(asyncio.create_task(infer.announce_until(settings.advertise or url, stop)))
            announced[0].add_done_callback(lambda _: served.set())
            if say is not None:
                say(url)

        with noted(await development_key(settings, infer.ring), listening) as noting:
            await serve_role(settings, infer.app, stop=served, say=noting)
