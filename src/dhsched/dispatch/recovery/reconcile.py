"""Reconciliation: find what no single step can see. These are boots that will never come back, lives below a new term's
floor, and counters that differ from a recount (paper, 7.6).

The steps keep the counters exact, so drift is a defect: it is counted and reported as an event, never repaired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery.blame import cordon
from dhsched.dispatch.recovery.recover import Recovery
from dhsched.dispatch.recovery.safety import violations
from dhsched.ownership import outcomes as o

log = structlog.get_logger(__name__)

REAPS_MAX = 64  # Lost Workers that one round tries to reap; further ones wait for a later round.
RECOUNTS = 16  # Workers recounted in one round, chosen at random.
PAGE = 500  # Names of lives read per store call while all lives are walked.


class Reconciliation:
    """The reconciliation loop of one replica."""

    def __init__(self, context: DispatchContext, recovery: Recovery) -> None:
        self._context = context
        self._recovery = recovery
        self._walking = asyncio.Lock()
        self._drift: dict[str, tuple[int, int]] = {}
        """Drift that this replica has reported, by Worker: it is reported again only when it changes."""
        self._departing: dict[str, dict[str, float]] = {}
        """Slots that were departing at the last reading, by Worker, and since when by this replica's own clock."""

    async def round(self) -> None:
        await self._walk_new_term()
        await self._reap()
        workers = sorted(self._context.fleet.view.workers)
        sampled = self._context.rng.sample(workers, min(RECOUNTS, len(workers)))
        await self._recount(sampled)
        await self._find_old_departing(sampled)

    async def follow(self) -> None:
        """Wait until `Terms` has noticed a new term, and act at once. After a failure the next refresh of the view sets
        `due` again."""
        await self._context.terms.due.wait()
        self._context.terms.due.clear()
        await self._walk_new_term()

    async def _walk_new_term(self) -> None:
        terms, fleet = self._context.terms, self._context.fleet
        async with self._walking:
            if fleet.term > terms.walked:
                await self._walk(fleet.term)

    async def _reap(self) -> None:
        """Ask the store to reap lost Workers: it removes those that have been lost for long and own no live."""
        beats = await self._context.records.workers.beats()
        lost = [worker for worker, seen in beats.items() if seen.lost]
        for worker in lost[:REAPS_MAX]:
            if isinstance(await self._context.store.set_worker(worker=worker, verb="reap"), o.WorkerSet):
                self._context.events.say("worker_reaped", worker=worker)

    async def _recount(self, workers: Sequence[str]) -> None:
        for worker in workers:
            if (drift := await self._context.records.workers.drift(worker)) is not None:
                self._context.metrics.drift.inc()
                self._context.safety.drift += 1
                if self._drift.get(worker) != drift:
                    self._drift[worker] = drift
                    log.error("a Worker's load is not what its slots say", worker=worker, load=drift[0], slots=drift[1])
                    self._context.events.say("drift", worker=worker, load=drift[0], slots=drift[1])
            await self._check(worker)
        self._context.safety.checked_at = self._context.loop_time()

    async def _check(self, worker: str) -> None:
        found = await violations(self._context.records, worker)
        self._context.metrics.overshoots.inc(found.overshoot)
        self._context.metrics.dual_owners.inc(len(found.dual_owners))
        totals = self._context.safety
        totals.overshoots += found.overshoot
        totals.dual_owners += len(found.dual_owners)
        totals.workers += 1
        if found:
            log.error("a Worker holds what it must not", worker=worker, beyond=found.overshoot, tags=found.dual_owners)

    async def _find_old_departing(self, workers: Sequence[str]) -> None:
        """Cordon Workers with slots that have been departing for `departing_max_s`. The slot of a runtime that does not
        stop is never freed by time alone.

        The store keeps no age of a departing slot. A tag departs only once, so a tag that is departing in two readings
        was departing in between.
        """
        context, now = self._context, self._context.loop_time()
        known = context.fleet.view.workers
        self._departing = {worker: seen for worker, seen in self._departing.items() if worker in known}
        for worker in workers:
            before = self._departing.get(worker, {})
            seen = {tag: before.get(tag, now) for tag in await context.records.workers.departing(worker)}
            self._departing[worker] = seen
            old = sorted(tag for tag, since in seen.items() if now - since >= context.settings.departing_max_s)
            if old and not known[worker].barred:
                limit_s = context.settings.departing_max_s
                reason = f"{len(old)} runtimes have not stopped within {limit_s:g} s, for example that of {old[0]}"
                await cordon(context, worker, reason, {"departing": len(old), "departing_max_s": limit_s})

    async def _walk(self, term: int) -> None:
        """Look at every live once: after a new term all lives are below the floor, and not on the agenda for it."""
        after, looked = "", 0
        while names := await self._context.records.lives.all_names(after, PAGE):
            await self._recovery.look(names)
            after, looked = names[-1], looked + len(names)
        self._context.terms.walked = term
        log.warning("looked at every live for a new term", term=term, lives=looked)
