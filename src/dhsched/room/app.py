"""One room process: builds its parts, serves and stops them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from aiohttp import web

from dhsched.client.http import open_session
from dhsched.room import publish, viewing, whep
from dhsched.room.rooms import Rooms
from dhsched.room.settings import RoomSettings
from dhsched.room.tracks import use_addresses
from dhsched.room.upstream import Upstream
from dhsched.room.whip import WhipOutputs
from dhsched.tasks import cancel
from dhsched.types import check_id
from dhsched.web import Service, listening, make_app, make_metrics_app, make_service, serve_role
from dhsched.web.figures import Figure, Figures

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Room:
    """A room process that is ready to serve."""

    rooms: Rooms
    app: web.Application
    metrics: web.Application
    """Serves /metrics, on a listener of its own."""


@asynccontextmanager
async def open_room(settings: RoomSettings) -> AsyncIterator[Room]:
    use_addresses(settings.media_addresses)
    for library in ("aioice", "aiortc"):
        logging.getLogger(library).setLevel(logging.WARNING)  # At INFO they log every candidate of every viewer.
    urls = settings.dispatch_urls + settings.infer_urls
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(open_session(urls, settings.tls_ca, connections_max=64))
        out = await stack.enter_async_context(open_session([settings.whip], settings.tls_ca, connections_max=16))
        whip = WhipOutputs(settings, out)
        rooms = Rooms(settings, Upstream(http, settings), whip)
        name = check_id(settings.name or f"r-{secrets.token_hex(4)}", "name")
        service = make_service(settings, role="room", instance=name, ready=rooms.upstream.reachable)
        service.own_tokens, service.public_metrics = rooms.gate.needs_tokens, False
        if not rooms.gate.needs_tokens:
            log.warning("access is open: anybody who reaches this room may watch and type", host=settings.host)
        rooms.is_stopping = lambda: service.stopping
        watch(service, rooms, whip)
        raw = [*publish.routes(rooms), *whep.routes(rooms), *viewing.page_routes(settings)]
        app = make_app(service, viewing.endpoints(rooms), raw)
        loops = [
            asyncio.create_task(rooms.confirm(), name="confirm lives"),
            asyncio.create_task(rooms.follow_keys(), name="viewer keys"),
        ]
        try:
            yield Room(rooms, app, make_metrics_app(service))
        finally:
            await cancel(*loops)
            await rooms.close()


def watch(service: Service, rooms: Rooms, whip: WhipOutputs) -> None:
    """Register the metrics, which are read when the metrics page is requested."""
    figures: list[Figure] = [
        ("dhsched_room_lives", "Lives that this room knows.", lambda: len(rooms)),
        ("dhsched_room_on_air", "Lives that show something.", lambda: rooms.on_air),
        ("dhsched_room_viewers", "Viewers.", lambda: rooms.viewers),
        ("dhsched_room_offers", "Offers whose connection is not up yet.", lambda: rooms.places.offers),
        ("dhsched_room_offers_given_up_total", "Offers that never connected.", lambda: rooms.places.given_up),
        ("dhsched_room_viewers_refused_total", "Offers refused at a limit.", lambda: rooms.places.refused),
        ("dhsched_room_publishers", "Publishers that are connected.", lambda: rooms.publishers),
        ("dhsched_room_whip_lives", "Lives that are to be sent to a WHIP ingest.", lambda: len(whip)),
        ("dhsched_room_whip_connected", "Connections to a WHIP ingest that are up.", lambda: whip.connected),
        ("dhsched_room_whip_connects_total", "Connections to a WHIP ingest that came up.", lambda: whip.connects),
        ("dhsched_room_whip_failures_total", "Connections to a WHIP ingest that failed.", lambda: whip.failures),
        *rooms.counts.all(),
    ]
    service.registry.register(Figures(figures))


async def run_room(settings: RoomSettings, stop: asyncio.Event, *, say: Callable[[str], None] | None = None) -> None:
    """Serve until `stop` is set."""
    async with open_room(settings) as room, AsyncExitStack() as stack:
        if settings.metrics_port:
            host, port = settings.metrics_host, settings.metrics_port
            url = await stack.enter_async_context(listening(room.metrics, host=host, port=port, stop_s=0))
            log.info("metrics are served", url=f"{url}/metrics")
        await serve_role(settings, room.app, stop=stop, say=say)
