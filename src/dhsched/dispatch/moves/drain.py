"""The drain loop of every replica: read the records of a draining Worker's lives, plan, act (paper, 6.3 and 7.6).

plan.py decides what to do; cutover.py moves a live. The loop's memory is only a cache: a replica that dies at any
instruction leaves the move in the live's record, and another replica continues from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from dhsched.dispatch.commit import retry_unknown
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.moves.cutover import Cutovers
from dhsched.dispatch.moves.plan import Blocked, CutOver, DrainNotes, Force, Plan, Reserve, Rules, plan
from dhsched.errors import StoreError
from dhsched.ownership import outcomes as o
from dhsched.store.records.drains import DrainRequest
from dhsched.store.records.lives import LiveOnWorker

log = structlog.get_logger(__name__)

SOURCES_MAX = 64  # Draining Workers handled in one round, chosen at random; the others wait for a later round.
FORCED_AT_ONCE = 32  # Lives with a target that are forced at the same time; further ones wait.
BY_WORKER = "the Worker itself"
READ_S = 0.002  # Time without reading a source's lives again, for each of them.
FORGET_S = 30.0  # Time between two searches for drain requests of Workers that are gone.


class Draining:
    """The drain loop of one replica. `send_to` is called again and again with a drained Worker and the cell that it is
    to register in, if its drain has named one."""

    def __init__(
        self, context: DispatchContext, cutovers: Cutovers, notes: DrainNotes, send_to: Callable[[str, str], None]
    ) -> None:
        self._context = context
        self._notes = notes
        self._cutovers = cutovers
        self._send_to = send_to
        self._cut: dict[str, int] = {}  # By source: cutovers that ended without a reservation after them yet.
        self._follow = asyncio.Event()
        self._read_at: dict[str, float] = {}
        self._rows: dict[str, list[LiveOnWorker]] = {}  # By source, as they were last read.
        self._forgot_at = context.loop_time()
        self._unread = asyncio.Event()
        self._one_round = asyncio.Lock()
        cutovers.on_cut.append(self._on_cut)
        context.fleet.on_refresh.append(self._on_refresh)

    async def round(self) -> None:
        async with self._one_round:
            await self._round()

    async def begin(self) -> None:
        """Wait until the view shows a drain whose lives were not read yet, and do a round then, not a period later."""
        await self._unread.wait()
        self._unread.clear()
        await self.round()

    def _on_refresh(self) -> None:
        if any(source not in self._read_at for source in self._sources()):
            self._unread.set()

    def _sources(self) -> list[str]:
        return [each.worker for each in self._context.fleet.view.workers.values() if each.barred == "draining"]

    async def _round(self) -> None:
        context, notes = self._context, self._notes
        sources = self._sources()
        context.rng.shuffle(sources)
        seen: list[LiveOnWorker] = []
        if sources:
            records = context.records
            asked, now_ms = await asyncio.gather(records.drains.all(), records.server.now_ms())
            for source in sources[:SOURCES_MAX]:
                request = asked.get(source) or default_request(context, source)
                if not self._due(source, request, now_ms):
                    seen += self._rows[source]
                    continue
                rows, moves_max = await asyncio.gather(
                    records.lives.on_worker(source), records.workers.cutovers_max(source)
                )
                self._read_at[source], self._rows[source] = context.loop_time(), rows
                seen += rows
                made = plan_now(context, notes, rows, request, now_ms, moves_max)
                notes.queue[source] = [*made.queue]
                await self._act(source, made)
                made = plan_now(context, notes, rows, request, now_ms, moves_max)  # With the new notes.
                await self._say(source, made, request.to_cell)
        notes.keep(seen)
        for kept in (notes.queue, self._read_at, self._rows):
            for source in {*kept} - {*sources}:
                del kept[source]
        if context.loop_time() - self._forgot_at >= FORGET_S:
            self._forgot_at = context.loop_time()
            await self._forget()

    def _due(self, source: str, request: DrainRequest, now_ms: int) -> bool:
        """Return whether to read the source's lives again. Between two reads cutovers follow each other by themselves
        (`follow`), so a source with many lives is read less often, except at its deadline."""
        rows = self._rows.get(source, [])
        wait_s = READ_S * len(rows)
        ends = 0 < request.deadline_at_ms <= now_ms + 1000 * wait_s
        return not rows or ends or self._context.loop_time() - self._read_at[source] >= wait_s

    async def follow(self) -> None:
        """Wait for the end of a cutover, and reserve for the next live of its source at once, not at the next round."""
        await self._follow.wait()
        self._follow.clear()
        cut, self._cut = self._cut, {}
        for source, count in cut.items():
            queue = self._notes.queue.get(source, [])
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

    async def _say(self, source: str, made: Plan, to_cell: str) -> None:
        """Write an event when the drain is done, or when all its lives are blocked. Only one replica writes each."""
        records = self._context.store.records
        if not made.standings:
            if not await records.workers.is_empty(source):
                return
            if to_cell:
                self._send_to(source, to_cell)
            if await records.drains.first_to_say(source, "done"):
                self._context.events.say("drain_done", worker=source)
            return
        stuck = [standing for standing in made.standings if standing.state == "blocked"]
        if len(stuck) == len(made.standings) and await records.drains.first_to_say(source, "blocked"):
            self._context.events.say(
                "drain_blocked", worker=source, lives=len(stuck), code=stuck[0].code, reason=stuck[0].reason
            )

    async def _reserve(self, source: str, rows: Sequence[LiveOnWorker]) -> None:
        """Reserve for all of these lives at once; of those that were blocked, only for one of each DigitalID."""
        notes = self._notes
        blocked = {row.digital_id: row for row in reversed(rows) if row.live in notes.blocked}
        asked = [*(row for row in rows if row.live not in notes.blocked), *blocked.values()]
        if not asked or await self._cancelled(source):
            return
        outcomes = await asyncio.gather(*(self._cutovers.reserve(row, source) for row in asked))
        made = {
            row.live: outcome.number
            for row, outcome in zip(asked, outcomes, strict=True)
            if isinstance(outcome, o.Reserved) and not outcome.again
        }
        if made and await self._cancelled(source):
            # Cancelling has cleared all earlier reservations; these came after it.
            store = self._context.store
            await asyncio.gather(*(store.cancel(live=live, number=number) for live, number in made.items()))
            return
        for row, outcome in zip(asked, outcomes, strict=True):
            if not isinstance(outcome, o.Busy):
                self._note(source, row, outcome if isinstance(outcome, Blocked) else None)

    def _note(self, source: str, row: LiveOnWorker, blocked: Blocked | None) -> None:
        """Note what blocks a live, or that nothing does. The same holds for the other lives of its DigitalID."""
        notes = self._notes
        waiting = notes.queue.get(source, []) if blocked or notes.blocked else []
        same = [row.live, *(other.live for other in waiting if other.digital_id == row.digital_id)]
        if blocked is not None and row.live not in notes.blocked:
            log.warning("a live cannot leave a draining Worker", live=row.live, source=source, reason=blocked.reason)
        for live in same:
            if blocked is not None:
                notes.blocked[live] = blocked
            else:
                notes.blocked.pop(live, None)

    async def _cancelled(self, source: str) -> bool:
        """Return whether the drain is over, read from the store: the view may be old, and `reserve` does not check."""
        if await self._context.store.records.workers.mode(source) == "draining":
            return False
        self._notes.queue.pop(source, None)
        return True

    async def _force(self, source: str, rows: Sequence[LiveOnWorker]) -> None:
        turns = asyncio.Semaphore(FORCED_AT_ONCE)
        reserving = asyncio.Semaphore(self._context.store.limits.cutovers_max)

        async def one(row: LiveOnWorker) -> None:
            async with turns if row.target else reserving:
                outcome = await self._cutovers.force(row, source)
            if isinstance(outcome, Blocked):
                self._notes.blocked[row.live] = outcome
            elif isinstance(outcome, o.Starting):
                reason = "Workers with a free slot are starting as many lives as they may; the next round tries again"
                self._notes.blocked[row.live] = Blocked("STARTING", reason)

        await asyncio.gather(*(one(row) for row in rows))

    async def _forget(self) -> None:
        """Delete the drain requests of Workers that are gone: a WorkerID never comes back."""
        records = self._context.store.records
        asked = await records.drains.all()
        there = {row.worker for row in (await records.fleet.snapshot()).workers} if asked else set()
        await records.drains.forget(worker for worker in asked if worker not in there)


def plan_now(
    context: DispatchContext,
    notes: DrainNotes,
    rows: Sequence[LiveOnWorker],
    request: DrainRequest,
    now_ms: int,
    moves_max: int,
) -> Plan:
    """Return the plan for a draining Worker's lives, by the records and this replica's notes. `moves_max` lives of the
    Worker may move at once."""
    limits, now_s = context.store.limits, context.loop_time()
    notes.read(rows, now_s=now_s)
    rules = Rules(cutovers_max=moves_max, move_expires_ms=limits.move_expires_ms)
    return plan(rows, request, rules, now_ms=now_ms, notes=notes, now_s=now_s)


def default_request(context: DispatchContext, worker: str) -> DrainRequest:
    """Default options for a drain that was requested without any."""
    return DrainRequest(asked_at_ms=0, lives=0, boundary_wait_s=boundary_wait_s_of(context, worker))


def boundary_wait_s_of(context: DispatchContext, worker: str) -> float:
    """Return how long a live of the Worker waits for a boundary: as its Pool says, or else this replica."""
    known = context.fleet.view.workers.get(worker)
    config = context.fleet.pools.get(known.pool) if known is not None else None
    own = config.boundary_wait_s if config is not None else None
    return context.settings.boundary_wait_s if own is None else own


async def ask_for_drain(
    context: DispatchContext,
    worker: str,
    *,
    deadline_s: float | None = None,
    boundary_wait_s: float | None = None,
    to_cell: str | None = None,
    by: str = BY_WORKER,
) -> o.SetOutcome:
    """Drain a Worker and return the outcome. A second request replaces the options that it names. With `to_cell` the
    Worker is told to register in that cell once it is empty.

    The request is written before the mode. A Worker's own request must not undo the operator's: of two deadlines the
    earlier one stays.
    """
    records = context.store.records
    before, now_ms = await asyncio.gather(records.drains.get(worker), records.server.now_ms())
    new = before is None
    if before is None:
        await records.drains.forget([worker])  # Marks of an earlier drain's events, should any be left.
        lives = len(await records.lives.on_worker(worker))
        before = DrainRequest(asked_at_ms=now_ms, lives=lives, boundary_wait_s=boundary_wait_s_of(context, worker))
    deadline_at_ms = before.deadline_at_ms
    if deadline_s is not None:
        asked_ms = now_ms + round(deadline_s * 1000)
        deadline_at_ms = min(deadline_at_ms, asked_ms) if by == BY_WORKER and deadline_at_ms else asked_ms
    request = DrainRequest(
        asked_at_ms=before.asked_at_ms,
        lives=before.lives,
        boundary_wait_s=before.boundary_wait_s if boundary_wait_s is None else boundary_wait_s,
        deadline_at_ms=deadline_at_ms,
        to_cell=before.to_cell if to_cell is None else to_cell,
    )
    until = context.loop_time() + context.settings.deadline_s
    await retry_unknown(context, "drain_request", lambda: records.drains.put(worker, request), until=until)
    outcome = await retry_unknown(
        context, "set_worker", lambda: context.store.set_worker(worker=worker, verb="drain"), until=until
    )
    if new and isinstance(outcome, o.WorkerSet):
        goes = {"to_cell": request.to_cell} if request.to_cell else {}
        context.events.say("drain_started", worker=worker, drain_by=by, lives=request.lives, **goes)
    with suppress(StoreError):
        await context.fleet.refresh()  # So that this replica begins now.
    return outcome


async def cancel_drain(context: DispatchContext, worker: str) -> o.SetOutcome:
    """Cancel the drain: the Worker takes new lives again, and the store clears its moves. Return the outcome."""
    outcome = await retry_unknown(
        context, "set_worker", lambda: context.store.set_worker(worker=worker, verb="undrain")
    )
    known = await context.store.records.drains.forget([worker])
    if known and isinstance(outcome, o.WorkerSet):
        context.events.say("drain_cancelled", worker=worker)
    return outcome
