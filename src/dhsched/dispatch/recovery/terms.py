"""Terms: the one place that decides whether the store has lost history, and begins a new term.

A new term restarts every runtime of the cell, so it needs proof, and one loss must begin one term. There are two kinds
of evidence:

- This replica itself read a later state than the store has now. Such evidence cannot be forged.
- Workers report slot tables that the store never wrote. A Worker may report this falsely, so one voice is not enough
  unless there is only one, and claims begin a term at most once in WORDS_TERM_S. A voice is an API key on a machine:
  two Worker names that one voice registers are no more evidence than one name.

Evidence belongs to the term in which it was seen: the step refuses it in any later term (MOOT). So several replicas, or
both kinds of evidence, that notice one loss begin one term together.
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

CLAIMS_S = 10.0  # A Worker's claim that history was lost is forgotten after this time.
WORDS_TERM_S = 60.0  # For this long after a term began, Workers' claims begin no other term.
CLAIMS_SHOWN = 4  # Workers that an event names; further ones are only counted.


class Voice(NamedTuple):
    """The origin of a Worker's claims: its machine's address, and the API key of its link, where known."""

    address: str
    key: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A Worker's claim that its slot table is of a later state than the store's, which was at `store_term`."""

    worker: str
    voice: Voice
    term: int
    rev: int
    store_term: int
    at: float


class Terms:
    """The rule about lost history, for one replica. `due` is set when there is a loss to fence, or a term whose lives
    were not walked yet."""

    def __init__(self, store: Store, fleet: Fleet, events: Events) -> None:
        self.due = asyncio.Event()
        self.walked = 1
        """The last term in which every live was looked at. The first term has no floor, so it needs no walk."""
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
        """Begin a new term if this replica has read that the store went back."""
        lost = self._fleet.lost
        if lost is None:
            return
        await self._begin(lost)
        if self._fleet.lost is lost:
            self._fleet.lost = None
        await self._fleet.refresh()

    async def claimed(self, claim: Claim, linked: Collection[Voice]) -> None:
        """Record a Worker's claim that the store went back, and begin a new term once the claims suffice. `linked` has
        the voices of all Workers that are linked to this replica."""
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
            # The highest term that any Worker was shown: with a lower one, a term could be issued a second time.
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
    """Return how many different voices there are at least: 0, 1, or 2 for more than one."""
    addresses, keys = set(), set()
    for voice in heard:
        addresses.add(voice.address)
        keys.add(voice.key)
    return min(2, max(len(addresses), len(keys - {""})))


def words_of(claims: list[Claim]) -> str:
    """Return the evidence as text, for the event."""
    shown = ", ".join(f"{each.worker} (term {each.term} rev {each.rev})" for each in claims[:CLAIMS_SHOWN])
    more = f" and {len(claims) - CLAIMS_SHOWN} more" if len(claims) > CLAIMS_SHOWN else ""
    return f"Workers hold later slot tables than the store, which is at term {claims[0].store_term}: {shown}{more}"
