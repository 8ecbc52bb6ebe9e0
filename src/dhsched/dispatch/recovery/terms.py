"""Terms, for one replica: an operator begins one, and every replica sees to it that its lives are walked.

A new term puts every generation of the cell below a floor: each live is placed anew, at once. It is the operator's tool
for a cell whose records cannot be trusted. Nothing begins a term by itself: a store that has forgotten something is
repaired live by live (store/homes.py).
"""

from __future__ import annotations

import asyncio

import structlog

from dhsched.dispatch.telemetry.events import Events
from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.ownership import outcomes as o
from dhsched.store.steps.api import Store

log = structlog.get_logger(__name__)


class Terms:
    """See the module. `due` is set when there is a term whose lives were not walked yet."""

    def __init__(self, store: Store, fleet: Fleet, events: Events) -> None:
        self.due = asyncio.Event()
        self.walked = 1
        """The last term in which every live was looked at. The first term has no floor, so it needs no walk."""
        self._store = store
        self._fleet = fleet
        self._events = events
        fleet.on_refresh.append(self._refreshed)

    async def begin(self, term: int, reason: str) -> o.NewTermOutcome:
        """Begin the term after `term`, unless another one has begun."""
        if isinstance(outcome := await self._store.new_term(term=term), o.NewTerm):
            log.warning("a new term begins: every live is placed anew", term=outcome.term, reason=reason)
            self._events.say("new_term", term=outcome.term, floor=outcome.floor, reason=reason)
        await self._fleet.refresh()
        return outcome

    def _refreshed(self) -> None:
        if self._fleet.term > self.walked:
            self.due.set()
