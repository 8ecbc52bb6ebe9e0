"""Server-sent events: a response that stays open and gets the events of one round after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from dhsched.links.outbox import SEND_MAX_S, abort

KEEP_ALIVE_S = 10.0  # A stream without events gets a comment line this often.


async def send_events(request: web.Request, rounds: AsyncIterator[Sequence[bytes]]) -> web.StreamResponse:
    """Send the encoded events of each round, until there are no more rounds or the reader has gone."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    loop = asyncio.get_running_loop()
    sent_at = loop.time()
    try:
        await response.prepare(request)
        async for events in rounds:
            quiet = not events and loop.time() - sent_at >= KEEP_ALIVE_S
            for each in [b": still here\n\n"] if quiet else events:
                await _write(response, each, request)
                sent_at = loop.time()
    except ConnectionError:
        pass  # The reader has gone.
    return response


async def _write(response: web.StreamResponse, data: bytes, request: web.Request) -> None:
    """Write to the open response; a reader that accepts no data for SEND_MAX_S is disconnected."""
    try:
        async with asyncio.timeout(SEND_MAX_S):
            await response.write(data)
    except TimeoutError:
        abort(request.transport)
        raise ConnectionResetError(f"the peer took nothing for {SEND_MAX_S:g} s") from None
