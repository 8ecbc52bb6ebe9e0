"""Readers of server-sent events: limits how many streams of one kind are open, and writes each response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from dhsched.dispatch.context import DispatchContext
from dhsched.web import Problem, Request
from dhsched.web.event_stream import send_events
from dhsched.web.shares import InFlight

FOLLOWERS_MAX = 64  # Streams of one kind on one replica, shared as requests are (web/shares.py); then BUSY.


class Followers:
    """The open streams of one kind on one replica."""

    def __init__(self, context: DispatchContext, what: str) -> None:
        self._context = context
        self._what = what
        self._open = InFlight(FOLLOWERS_MAX)

    async def send(self, asked: Request, rounds: AsyncIterator[Sequence[bytes]]) -> web.StreamResponse:
        """Send the events of each round until the reader goes; raise BUSY if there are too many readers."""
        caller, service, opened = asked.caller, self._context.service, self._open
        service.refuse_connection(caller)
        if opened.total >= FOLLOWERS_MAX or (service.load.fair and opened.share_left(caller.tenant, caller.key) <= 0):
            raise Problem(
                "BUSY",
                f"{opened.total} {self._what} are open on this replica, of {FOLLOWERS_MAX} at most, and a key has "
                "no more of them than are left for others; ask another replica",
                followers_max=FOLLOWERS_MAX,
            )
        opened.begin(caller.tenant, caller.key)
        try:
            with (
                service.connections.counted(caller.key),
                service.load.parked(caller),
                service.open_while(caller, asked.request),
            ):
                return await send_events(asked.request, rounds)
        finally:
            opened.end(caller.tenant, caller.key)
