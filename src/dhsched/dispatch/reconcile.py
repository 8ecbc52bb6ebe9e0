"""Reconciliation: what no single step can see. Boots that will never come back, lives below a new term's floor, and
counters that should be what a recount says (paper, 7.6).

The steps keep the counters exact, so drift is a defect: it is counted and said, never repaired in silence.
"""

from __future__ import annotations

import structlog

from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recover import Recovery
from dhsched.dispatch.safety import violations
from dhsched.ownership import outcomes as o

log = structlog.get_logger(__name__)

REAPS_MAX = 64  # Lost Workers asked about in one round.
RECOUNTS = 16  # Workers recounted in one round, by chance.
PAGE = 500  # Lives looked at between two pauses of a walk.


class Reconciliation:
    """The loop of one replica."""

    def __init__(self, context: DispatchContext, recovery: Recovery) -> None:
        self._context = context
        self._recovery = recovery
        self._walked_term = 1
        """Every live was looked at in this term. In the first one there is no floor to be below."""

    async def round(self) -> None:
        await self._begin_term()
        await self._reap()
        await self._recount()
        if self._context.fleet.term > self._walked_term:
            await self._walk(self._context.fleet.term)

    async def _begin_term(self) -> None:
        """The store was found older than it was: fence all that its lost past may have issued."""
        fleet = self._context.fleet
        if fleet.lost_term is None:
            return
        outcome = await self._context.store.new_term(term=fleet.term, seen_term=fleet.lost_term)
        log.error("the store has lost history", outcome=outcome)
        fleet.lost_term = None
        await fleet.refresh()

    async def _reap(self) -> None:
        """A Worker that has been lost for long, with nothing left on it, is forgotten: the store says which."""
        beats = await self._context.reads.beats()
        lost = [worker for worker, seen in beats.items() if seen.lost]
        for worker in lost[:REAPS_MAX]:
            outcome = await self._context.store.set_worker(worker=worker, verb="reap")
            if isinstance(outcome, o.WorkerSet):
                log.info("Worker reaped", worker=worker)

    async def _recount(self) -> None:
        workers = sorted(self._context.fleet.view.workers)
        for worker in self._context.rng.sample(workers, min(RECOUNTS, len(workers))):
            drift = await self._context.reads.drift(worker)
            if drift is not None:
                self._context.metrics.drift.inc()
                log.error("a Worker's load is not what its slots say", worker=worker, load=drift[0], slots=drift[1])
            await self._check(worker)

    async def _check(self, worker: str) -> None:
        found = await violations(self._context.reads, worker)
        self._context.metrics.overshoots.inc(found.overshoot)
        self._context.metrics.dual_owners.inc(len(found.dual_owners))
        if found:
            log.error("a Worker holds what it must not", worker=worker, beyond=found.overshoot, tags=found.dual_owners)

    async def _walk(self, term: int) -> None:
        """Look at every live once: after a new term all are below the floor, and none is on the agenda for it."""
        after, looked = "", 0
        while names := await self._context.reads.all_names(after, PAGE):
            for live in names:
                await self._recovery.look(live)
            after, looked = names[-1], looked + len(names)
        self._walked_term = term
        log.warning("looked at every live for a new term", term=term, lives=looked)
