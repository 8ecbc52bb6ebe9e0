"""When the store counts as having lost history, and a new term begins: the one place that decides it.

A new term restarts every runtime of the cell, so it takes proof, and one loss begins one term. There are two kinds of
evidence:

- This replica itself read a later state than the store has now. Nobody else can have made that up.
- Workers report slot tables that the store never wrote. A Worker can say so falsely, so one voice is not enough unless
  there is only one, and such words begin a term at most once in WORDS_TERM_S. A voice is an API key on a machine: two
  names that one of them registers say nothing that one name does not.

Evidence is of the term in which it was seen: the step refuses it in any later one (MOOT). So replicas, and the two
kinds, that notice one loss together begin one term together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from dhsched.dispatch.telemetry.events import Events
from dhsched.dispatch.view.fleet_view import Fleet, Lost
from dhsched.ownership import outcomes as o
from dhsched.store.steps.api import TERMS_LOST_MAX, Store

log = structlog.get_logger(__name__)

CLAIMS_S = 10.0  # For which a Worker's word about lost history counts.
WORDS_TERM_S = 60.0  # After a term began, Workers' words begin no other one for so long.
CLAIMS_SHOWN = 4  # Workers that an event names.


class Voice(NamedTuple):
    """Where a Worker speaks from: its machine's address, and the API key that it registered with, where known."""

    address: str
    key: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A Worker's word: its slot table is of a later state than the store's, which was at `store_term`."""

    worker: str
    voice: Voice
    term: int
    rev: int
    store_term: int
    at: float


class Terms:
    """The rule, for one replica. `due` is set while there is a loss to fence, or a term whose lives were not walked."""

    def __init__(self, store: Store, fleet: Fleet, events: Events) -> None:
        self.due = asyncio.Event()
        self.walked = 1
        """The term in which every live was looked at. In the first one there is no floor to be below."""
        self._store = store
        self._fleet = fleet
        self._events = events
        self._claims: dict[str, Claim] = {}
        self._term = 0
        self._term_since = float("-inf")
        fleet.on_refresh.append(self._refreshed)

    def _refreshed(self) -> None:
        fleet = self._fleet
        if self._term not in (0, fleet.term):
            self._term_since = asyncio.get_running_loop().time()
        self._term = fleet.term
        if fleet.lost is not None or fleet.term > self.walked:
            self.due.set()

    async def fence(self) -> None:
        """Begin a term if this replica saw that the store went back."""
        lost = self._fleet.lost
        if lost is None:
            return
        await self._begin(lost)
        if self._fleet.lost is lost:
            self._fleet.lost = None
        await self._fleet.refresh()

    async def claimed(self, claim: Claim, linked: Collection[Voice]) -> None:
        """A Worker says that the store went back; `linked` are the voices of all Workers that this replica hears."""
        self._claims[claim.worker] = claim
        counted = {
            worker: each
            for worker, each in self._claims.items()
            if claim.at - each.at <= CLAIMS_S and each.store_term == claim.store_term
        }
        self._claims = counted
        if self._fleet.lost is not None:
            await self.fence()
        elif self._believed(counted.values(), linked, claim.at):
            # The highest that anybody was shown: a lower one could be issued a second time.
            seen = min(max(each.term for each in counted.values()), claim.store_term + TERMS_LOST_MAX)
            self._claims = {}
            await self._begin(Lost(claim.store_term, seen, words_of([*counted.values()])), worker=claim.worker)
            await self._fleet.refresh()
        else:
            log.error("a Worker says that the store has lost history", claim=claim, claims=len(counted))

    def _believed(self, claims: Collection[Claim], linked: Collection[Voice], now: float) -> bool:
        enough = len(claims) >= min(2, len(self._fleet.view.workers))
        heard = voices(each.voice for each in claims) >= voices(linked)
        return enough and heard and now - self._term_since >= WORDS_TERM_S

    async def _begin(self, lost: Lost, *, worker: str = "") -> None:
        outcome = await self._store.new_term(term=lost.term, seen_term=lost.seen_term)
        log.error("the store has lost history", outcome=outcome, reason=lost.reason)
        if isinstance(outcome, o.NewTerm):
            self._events.say("new_term", worker=worker, term=outcome.term, floor=outcome.floor, reason=lost.reason)


def voices(heard: Iterable[Voice]) -> int:
    """How many different voices are among these at least: 0, 1, or 2 for more than one."""
    addresses, keys = set(), set()
    for voice in heard:
        addresses.add(voice.address)
        keys.add(voice.key)
    return min(2, max(len(addresses), len(keys - {""})))


def words_of(claims: list[Claim]) -> str:
    """The evidence, for the event."""
    shown = ", ".join(f"{each.worker} (term {each.term} rev {each.rev})" for each in claims[:CLAIMS_SHOWN])
    more = f" and {len(claims) - CLAIMS_SHOWN} more" if len(claims) > CLAIMS_SHOWN else ""
    return f"Workers hold later slot tables than the store, which is at term {claims[0].store_term}: {shown}{more}"
