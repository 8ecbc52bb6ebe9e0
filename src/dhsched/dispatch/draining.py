"""Drain, carried out in every replica: read the records of a draining Worker's lives, plan, act (paper, 6.3 and 7.6).

What to do is decided in drain.py; how a live is moved is in cutover.py. Nothing is remembered that matters: a replica
that dies at any instruction leaves a move in the live's record, and another one goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from dhsched.dispatch.context import DispatchContext, settle
from dhsched.dispatch.cutover import Cutovers
from dhsched.dispatch.drain import Blocked, CutOver, Force, Plan, Reserve, Rules, plan
from dhsched.ownership import outcomes as o
from dhsched.store.drains import (
    OnWorker,
    Wish,
    first_to_say,
    forget_wishes,
    is_empty,
    lives_on,
    mode_of,
    put_wish,
    store_now_ms,
    wish_of,
    wishes,
)

log = structlog.get_logger(__name__)

SOURCES_MAX = 64  # Draining Workers looked after in one round.
FORCED_AT_ONCE = 32  # Lives cut over at the same time past a deadline.
BY_WORKER = "the Worker itself"
FORGET_S = 30.0  # Between two looks for wishes of Workers that are gone.


class Draining:
    """The loop of one replica."""

    def __init__(self, context: DispatchContext, cutovers: Cutovers) -> None:
        self._context = context
        self._cutovers = cutovers
        self._cut: dict[str, int] = {}  # By source: cutovers that ended and were not followed by a reservation yet.
        self._follow = asyncio.Event()
        self._forgot_at = context.loop_time()
        cutovers.on_cut.append(self._on_cut)

    async def round(self) -> None:
        context, notes = self._context, self._context.drain_notes
        sources = [each.worker for each in context.fleet.view.workers.values() if each.barred == "draining"]
        context.rng.shuffle(sources)
        seen: list[OnWorker] = []
        if sources:
            link, keys = context.reads.link, context.reads.keys
            asked, now_ms = await asyncio.gather(wishes(link, keys), store_now_ms(link))
            for source in sources[:SOURCES_MAX]:
                wish = asked.get(source) or plain_wish(context)
                rows = await lives_on(link, keys, source)
                seen += rows
                made = look(context, rows, wish, now_ms)
                notes.queue[source] = [*made.queue]
                await self._act(source, made)
                await self._say(source, look(context, rows, wish, now_ms))  # With what it has just found out.
        notes.keep(seen)
        notes.queue = {source: queue for source, queue in notes.queue.items() if source in sources}
        if context.loop_time() - self._forgot_at >= FORGET_S:
            self._forgot_at = context.loop_time()
            await self._forget()

    async def follow(self) -> None:
        """A cutover ended, so the next live of its source may begin: not at the next round, but now."""
        await self._follow.wait()
        self._follow.clear()
        cut, self._cut = self._cut, {}
        for source, count in cut.items():
            queue = self._context.drain_notes.queue.get(source, [])
            following, queue[:] = queue[:count], queue[count:]
            await self._reserve(source, following)

    def _on_cut(self, source: str) -> None:
        self._cut[source] = self._cut.get(source, 0) + 1
        self._follow.set()

    async def _act(self, source: str, made: Plan) -> None:
        forced = [action.row for action in made.actions if isinstance(action, Force)]
        held = [action.row for action in made.actions if isinstance(action, CutOver)]
        following = [action.row for action in made.actions if isinstance(action, Reserve)]
        if forced:
            await self._force(source, forced)
        if held:
            await asyncio.gather(*(self._cutovers.cut_over(row, source, "drain") for row in held))
        await self._reserve(source, following)

    async def _say(self, source: str, made: Plan) -> None:
        """A drain that is over, or that cannot go on, is an event; every replica sees it, and one says it."""
        link, keys = self._context.reads.link, self._context.reads.keys
        if not made.standings:
            if await is_empty(link, keys, source) and await first_to_say(link, keys, source, "done"):
                self._context.events.say("drain_done", worker=source)
            return
        stuck = [standing for standing in made.standings if standing.state == "blocked"]
        if len(stuck) == len(made.standings) and await first_to_say(link, keys, source, "blocked"):
            self._context.events.say(
                "drain_blocked", worker=source, lives=len(stuck), code=stuck[0].code, why=stuck[0].why
            )

    async def _reserve(self, source: str, rows: Sequence[OnWorker]) -> None:
        notes = self._context.drain_notes
        refused: dict[str, Blocked] = {}
        for row in rows:
            if row.digital_id in refused:
                notes.blocked[row.live] = refused[row.digital_id]
                continue
            if await self._cancelled(source):
                return
            outcome = await self._cutovers.reserve(row, source)
            if isinstance(outcome, o.Busy):
                return
            if isinstance(outcome, o.Reserved) and not outcome.again and await self._cancelled(source):
                # What was reserved before it was cancelled, the cancelling has cleared; this came after.
                await self._context.store.cancel(live=row.live, number=outcome.number)
                return
            if isinstance(outcome, Blocked):
                refused[row.digital_id] = outcome
                if row.live not in notes.blocked:
                    log.warning("a live cannot leave a draining Worker", live=row.live, source=source, why=outcome.why)
                # The others of its DigitalID would hear the same.
                for other in (row, *notes.queue.get(source, [])):
                    if other.digital_id == row.digital_id:
                        notes.blocked[other.live] = outcome
            else:
                notes.blocked.pop(row.live, None)
                if notes.blocked:
                    freed = [each.live for each in notes.queue.get(source, []) if each.digital_id == row.digital_id]
                    for live in freed:
                        notes.blocked.pop(live, None)

    async def _cancelled(self, source: str) -> bool:
        """The view may be old, and `reserve` does not ask why: nobody must be moved for a drain that is over."""
        if await mode_of(self._context.store.link, self._context.store.keys, source) == "draining":
            return False
        self._context.drain_notes.queue.pop(source, None)
        return True

    async def _force(self, source: str, rows: Sequence[OnWorker]) -> None:
        turns = asyncio.Semaphore(FORCED_AT_ONCE)
        reserving = asyncio.Semaphore(self._context.store.limits.cutovers_max)

        async def one(row: OnWorker) -> None:
            async with turns if row.target else reserving:
                outcome = await self._cutovers.force(row, source)
            if isinstance(outcome, Blocked):
                self._context.drain_notes.blocked[row.live] = outcome
            elif isinstance(outcome, o.Starting):
                why = "the Workers that have room are starting as many lives as they may; it is tried again at once"
                self._context.drain_notes.blocked[row.live] = Blocked("STARTING", why)

        await asyncio.gather(*(one(row) for row in rows))

    async def _forget(self) -> None:
        """Wishes for Workers that are gone: a WorkerID never comes back."""
        link, keys = self._context.reads.link, self._context.reads.keys
        asked = await wishes(link, keys)
        there = {row.worker for row in (await self._context.reads.snapshot()).workers} if asked else set()
        await forget_wishes(link, keys, [worker for worker in asked if worker not in there])


def look(context: DispatchContext, rows: Sequence[OnWorker], wish: Wish, now_ms: int) -> Plan:
    """What to do with a draining Worker's lives, as this replica sees it now."""
    limits, notes, now_s = context.store.limits, context.drain_notes, context.loop_time()
    notes.look(rows, now_s=now_s)
    rules = Rules(cutovers_max=limits.cutovers_max, move_expires_ms=limits.move_expires_ms)
    return plan(rows, wish, rules, now_ms=now_ms, notes=notes, now_s=now_s)


def plain_wish(context: DispatchContext) -> Wish:
    """What a drain is like of which nothing more was said than that it is one."""
    return Wish(asked_at_ms=0, lives=0, boundary_wait_s=context.settings.boundary_wait_s)


async def ask_for_drain(
    context: DispatchContext,
    worker: str,
    *,
    deadline_s: float | None = None,
    boundary_wait_s: float | None = None,
    by: str = BY_WORKER,
) -> o.SetOutcome:
    """Drain a Worker. What is said again replaces what was said, what is left out stays; the wish is written first.

    The Worker's own wish must not undo the operator's: of two deadlines it leaves the earlier one.
    """
    link, keys = context.reads.link, context.reads.keys
    before, now_ms = await asyncio.gather(wish_of(link, keys, worker), store_now_ms(link))
    new = before is None
    if before is None:
        await forget_wishes(link, keys, [worker])  # What was said of an earlier drain, should any of it be left.
        lives = len(await lives_on(link, keys, worker))
        before = Wish(asked_at_ms=now_ms, lives=lives, boundary_wait_s=context.settings.boundary_wait_s)
    deadline_at_ms = before.deadline_at_ms
    if deadline_s is not None:
        asked_ms = now_ms + round(deadline_s * 1000)
        deadline_at_ms = min(deadline_at_ms, asked_ms) if by == BY_WORKER and deadline_at_ms else asked_ms
    wish = Wish(
        asked_at_ms=before.asked_at_ms,
        lives=before.lives,
        boundary_wait_s=before.boundary_wait_s if boundary_wait_s is None else boundary_wait_s,
        deadline_at_ms=deadline_at_ms,
    )
    until = context.until()
    await settle("drain_wish", lambda: put_wish(link, keys, worker, wish), until=until)
    outcome = await settle("set_worker", lambda: context.store.set_worker(worker=worker, verb="drain"), until=until)
    if new and isinstance(outcome, o.WorkerSet):
        context.events.say("drain_started", worker=worker, drain_by=by, lives=wish.lives)
    return outcome


async def cancel_drain(context: DispatchContext, worker: str) -> o.SetOutcome:
    """The Worker takes lives again. What is under way has no reason any more: the store says so to who carries on."""
    outcome = await settle(
        "set_worker", lambda: context.store.set_worker(worker=worker, verb="undrain"), until=context.until()
    )
    known = await forget_wishes(context.reads.link, context.reads.keys, [worker])
    if known and isinstance(outcome, o.WorkerSet):
        context.events.say("drain_cancelled", worker=worker)
    return outcome
