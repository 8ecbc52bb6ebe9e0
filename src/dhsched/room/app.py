"""One room process: builds its parts, serves and stops them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from dhsched.client.http import open_session
from dhsched.room import publish, viewing, whep
from dhsched.room.rooms import Rooms
from dhsched.room.settings import RoomSettings
from dhsched.room.tracks import use_addresses
from dhsched.room.upstream import Upstream
from dhsched.types import check_id
from dhsched.web import Service, make_app, make_service, serve_role
from dhsched.web.figures import Figure, Figures


@dataclass(slots=True)
class Room:
    """A room process that is ready to serve."""

    rooms: Rooms
    app: web.Application


@asynccontextmanager
async def open_room(settings: RoomSettings) -> AsyncIterator[Room]:
    use_addresses(settings.media_addresses)
    for library in ("aioice", "aiortc"):
        logging.getLogger(library).setLevel(logging.WARNING)  # At INFO they log every candidate of every viewer.
    urls = settings.dispatch_urls + settings.infer_urls
    async with open_session(urls, settings.tls_ca, connections_max=64) as http:
        rooms = Rooms(settings, Upstream(http, settings))

        name = check_id(settings.name or f"r-{secrets.token_hex(4)}", "name")
        service = make_service(settings, role="room", instance=name, ready=rooms.upstream.reachable)
        watch(service, rooms)
        raw = [*publish.routes(rooms), *whep.routes(rooms), *viewing.page_routes()]
        app = make_app(service, viewing.endpoints(rooms), raw)
        confirming = asyncio.create_task(rooms.confirm(), name="confirm lives")
        try:
            yield Room(rooms, app)
        finally:
            confirming.cancel()
            await asyncio.gather(confirming, return_exceptions=True)
            await rooms.close()


def watch(service: Service, rooms: Rooms) -> None:
    """Register the metrics, which are read when the metrics page is requested."""
    figures: list[Figure] = [
        ("dhsched_room_lives", "Lives that this room knows.", lambda: len(rooms)),
        ("dhsched_room_on_air", "Lives that show something.", lambda: rooms.on_air),
        ("dhsched_room_viewers", "Viewers.", lambda: rooms.viewers),
        ("dhsched_room_publishers", "Publishers that are connected.", lambda: rooms.publishers),
        *rooms.counts.all(),
    ]
    service.registry.register(Figures(figures))


async def run_room(settings: RoomSettings, stop: asyncio.Event, *, say: Callable[[str], None] | None = None) -> None:
    """Serve until `stop` is set."""
    async with open_room(settings) as room:
        await serve_role(settings, room.app, stop=stop, say=say)
