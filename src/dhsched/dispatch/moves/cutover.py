"""Planned moves: reserve a slot, hold the input once the target is prepared, cut over at the boundary.

Drain and rebalancing decide which lives move; both carry a move out in the same way. The replica that the target is
linked to receives its report `prepared`, holds the input, and then asks the store every few milliseconds whether the
live rests: the user hears nothing between the last ack on the source and the first release on the target. Should that
replica die, the target reports `prepared` to another replica, and the drain loop of each replica continues held moves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import structlog
from msgspec import structs

from dhsched.dispatch.commit import Intent, choose_candidates, commit, retry_unknown
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.moves.plan import Blocked
from dhsched.dispatch.moves.rebalance import mode_of
from dhsched.dispatch.recovery.silences import Silences
from dhsched.errors import BadId, BadValue
from dhsched.ownership import outcomes as o
from dhsched.placement import CANDIDATES_LIMIT, Choice, PlacementRequest, name_worker
from dhsched.store.records.lives import LiveOnWorker
from dhsched.types import Cause, check_live, check_number, split_tag
from dhsched.web import Problem

log = structlog.get_logger(__name__)

MOVES_MAX = 256  # Moves that one replica carries out at once; past this, `prepared` tags wait for a later report.
MOVES_EACH = 64  # Moves onto one Worker among them; past this, its `prepared` tags wait for a later report.
ASKED_MAX = 32  # Moves that one round asks the store about; the others wait for the next round.
HELD_MAX = 4_096  # Tags remembered as done; past this the oldest is forgotten, and its next report is checked again.
CHECK_S = 1.0  # Time between two checks whether the move still exists.


@dataclass(slots=True)
class MoveInProgress:
    """One move that this replica carries out."""

    live: str
    number: int
    target: str
    operation: str
    give_up: float
    source: str = ""
    epoch: int = 0
    cause: Cause = "drain"
    digital_id: str = ""
    reserved_at_ms: int = 0
    checked_at: float = float("-inf")
    wanted: bool = True
    """False when neither a drain nor rebalancing wants the move; the next report checks again, as this may change."""


class Cutovers:
    """The moves of one replica. Each function in `on_cut` is called with the source of a move that is committed."""

    def __init__(self, context: DispatchContext, silences: Silences) -> None:
        self._silences = silences
        self.on_cut: list[Callable[[str], None]] = []
        self._context = context
        self._moves: OrderedDict[tuple[str, str], MoveInProgress] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._some = asyncio.Event()

    # -- reserve

    async def reserve(self, row: LiveOnWorker, source: str) -> o.ReserveOutcome | Blocked:
        """Reserve a slot for a live, by normal placement without its source; return the outcome, or what blocks it."""
        if isinstance(found := await self._choose(row, source), Blocked):
            return found
        request, choice = found
        if not (candidates := choice.without(source)):
            return no_free_slot(self._context, request, source)
        sent_rev = self._context.fleet.view.rev
        outcome = await retry_unknown(
            self._context,
            "reserve",
            lambda: self._context.store.reserve(live=row.live, expected=row.epoch, candidates=candidates),
        )
        if isinstance(outcome, o.Full):
            self._context.fleet.learn(outcome, sent_rev=sent_rev)
            return no_free_slot(self._context, request, source)
        if isinstance(outcome, o.Reserved) and not outcome.again:
            log.debug("place reserved", live=row.live, source=source, target=outcome.target, number=outcome.number)
        return outcome

    async def _choose(self, row: LiveOnWorker, source: str) -> tuple[PlacementRequest, Choice] | Blocked:
        if (request := await self._context.fleet.request(row.digital_id)) is None:
            return Blocked("NO_POOL", f"DigitalID {row.digital_id} does not exist any more; put it again")
        asking = structs.replace(request, last=source, candidates_max=CANDIDATES_LIMIT)
        try:
            return asking, choose_candidates(self._context, asking)
        except Problem as problem:
            return Blocked("NO_POOL", problem.detail)

    # -- prepared, hold, cut over

    def prepared(self, worker: str, tags: Iterable[str]) -> None:
        """Start a move for each reserved slot that the Worker reports as prepared. Every report repeats the tags.

        Moves are known by Worker and tag: a Worker that reports the slot of another one neither starts nor stops that
        move (`_hold` compares the move's target).
        """
        left = MOVES_EACH - sum(1 for move in self._moves.values() if move.target == worker)
        for tag in tags:
            key = (worker, tag)
            if key in self._known or key in self._moves:
                continue
            if left <= 0 or len(self._moves) >= MOVES_MAX:
                return
            try:
                live, number = split_tag(tag)
                check_live(live), check_number(number, "slot number")
            except (BadId, BadValue, ValueError):
                continue
            give_up = self._context.loop_time() + self._context.store.limits.move_expires_ms / 1000
            self._moves[key] = MoveInProgress(live, number, worker, self._context.operation(), give_up)
            left -= 1
            self._some.set()

    async def round(self) -> None:
        """Try each move once, the longest untried first; without any move, wait for one. Meanwhile those that are held
        already are tried again and again: their users hear nothing until they are cut over."""
        if not self._moves:
            self._some.clear()
            await self._some.wait()
        asked = [*self._moves.items()][:ASKED_MAX]
        held = [each for each in asked if each[1].source]
        beginning = asyncio.ensure_future(self._try([each for each in asked if not each[1].source]))
        try:
            while True:
                await self._try([each for each in held if each[0] in self._moves])
                if beginning.done():
                    break
                await asyncio.wait({beginning}, timeout=self._context.settings.cut_over_s)
        finally:
            beginning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beginning

    async def _try(self, asked: Sequence[tuple[tuple[str, str], MoveInProgress]]) -> None:
        done = await asyncio.gather(*(self._see_through(move) for _, move in asked), return_exceptions=True)
        for (key, move), over in zip(asked, done, strict=True):
            self._moves.move_to_end(key)
            if over is True or self._context.loop_time() >= move.give_up:
                del self._moves[key]
                if move.wanted:
                    self._know(key)
        for failed in done:
            if isinstance(failed, BaseException):
                raise failed

    def _know(self, key: tuple[str, str]) -> None:
        self._known[key] = None
        if len(self._known) > HELD_MAX:
            self._known.popitem(last=False)

    async def _see_through(self, move: MoveInProgress) -> bool:
        """Try to hold and commit the move once; return whether the move is over."""
        now = self._context.loop_time()
        if now - move.checked_at >= CHECK_S:
            if not await self._hold(move):
                return True
            move.checked_at = now
        if move.target in self._silences.hung_up:
            return False  # The target closed its link and may be dead: wait until it reports, or is lost.
        return not isinstance(await self._place(move), o.NotYet)

    async def _hold(self, move: MoveInProgress) -> bool:
        """Hold the input; return whether it is held, that is whether this move still exists and is this target's."""
        store = self._context.store
        if not move.source:
            found = await store.records.lives.with_move(move.live)
            if found is None or (found[1].target, found[1].number) != (move.target, move.number):
                return False
            source, row = found
            cause = await self._wanted_by(source)
            move.wanted = cause is not None
            if cause is None:
                return False
            move.source, move.epoch, move.cause, move.digital_id = source, row.epoch, cause, row.digital_id
            move.reserved_at_ms = row.expires_at_ms - store.limits.move_expires_ms
        outcome = await retry_unknown(self._context, "hold", lambda: store.hold(live=move.live, number=move.number))
        return isinstance(outcome, o.Held)

    async def _wanted_by(self, source: str) -> Cause | None:
        """Return why lives are to leave the source. None means that there is no reason any more: the move expires."""
        store, fleet = self._context.store, self._context.fleet
        if await store.records.workers.mode(source) == "draining":
            return "drain"
        known = fleet.view.workers.get(source)
        config = fleet.pools.get(known.pool) if known is not None else None
        if known is None or config is None:
            return None
        return "rebalance" if await mode_of(self._context, known.pool, config) == "act" else None

    async def _place(self, move: MoveInProgress) -> o.PlaceOutcome:
        return await self._commit(move, self._reserved(move), point="cut_over", how="planned")

    async def _commit(
        self, move: MoveInProgress, choice: Choice, *, point: str, how: Literal["planned", "forced"]
    ) -> o.PlaceOutcome:
        intent = Intent(
            live=move.live,
            cause=move.cause,
            point=point,
            operation=move.operation,
            choice=choice,
            expected=move.epoch,
            leave=move.source,
            holder=move.target,
            at_boundary=how == "planned",
            reserved_at_ms=move.reserved_at_ms,
        )
        if isinstance(outcome := (await commit(self._context, intent)).outcome, o.Committed):
            self._cut(move, outcome, how=how)
        return outcome

    def _reserved(self, move: MoveInProgress) -> Choice:
        """Return a choice of the target alone: it was chosen when the slot was reserved."""
        context = self._context
        request = PlacementRequest(move.digital_id, ())
        return name_worker(context.fleet.view, request, move.target, now=context.loop_time(), how="reserved")

    # -- for the loops

    async def cut_over(self, row: LiveOnWorker, source: str, cause: Cause) -> o.PlaceOutcome:
        """Commit a held move if the live rests, whichever replica held it; return the outcome."""
        return await self._place(self._of(row, source, cause))

    async def force(self, row: LiveOnWorker, source: str) -> o.PlaceOutcome | Blocked:
        """Commit the live now, without waiting for a boundary: on its target, or on any Worker with a free slot.

        A reserved slot does not count against the target's start budget, so a slot is reserved first even when there is
        no time to prepare anything.
        """
        move = self._of(row, source, "drain", operation=self._context.forced_operation())
        if not move.target:
            if isinstance(reserved := await self.reserve(row, source), Blocked):
                return reserved
            move.target = reserved.target if isinstance(reserved, o.Reserved) else ""
        if move.target:
            choice = self._reserved(move)
        else:
            if isinstance(found := await self._choose(row, source), Blocked):
                return found
            choice = found[1]
        return await self._commit(move, choice, point="force", how="forced")

    def _of(self, row: LiveOnWorker, source: str, cause: Cause, operation: str = "") -> MoveInProgress:
        reserved_at_ms = row.expires_at_ms - self._context.store.limits.move_expires_ms if row.target else 0
        return MoveInProgress(
            live=row.live,
            number=row.number,
            target=row.target,
            operation=operation or self._context.operation(),
            give_up=0.0,
            source=source,
            epoch=row.epoch,
            cause=cause,
            digital_id=row.digital_id,
            reserved_at_ms=reserved_at_ms,
        )

    def _cut(self, move: MoveInProgress, done: o.Committed, *, how: str) -> None:
        """Count and log a live that has moved, and let the next live of its source begin."""
        context = self._context
        if not done.again:
            if move.cause == "drain":
                context.metrics.drain_moves.labels(how).inc()
            else:
                context.metrics.rebalance_moves.inc()
            if how == "forced":
                context.events.say("forced_move", live=move.live, source=move.source, epoch=done.generation.epoch)
            took_s = max(0, context.store.now_ms - move.reserved_at_ms) / 1000 if move.reserved_at_ms else 0.0
            if move.reserved_at_ms:
                context.metrics.move_seconds.labels(move.cause).observe(took_s)
            say = log.warning if how == "forced" else log.info
            say(
                "live moved",
                live=move.live,
                cause=move.cause,
                how=how,
                source=move.source,
                generation=str(done.generation),
                took_s=round(took_s, 3),
            )
        for tell in self.on_cut:
            tell(move.source)


def no_free_slot(context: DispatchContext, request: PlacementRequest, source: str) -> Blocked:
    """Return why no Worker takes the live, from what this replica knows of the Workers of its Pools."""
    pools = [name for name, _ in request.pools]
    others = [each for each in context.fleet.view.workers.values() if each.pool in pools and each.worker != source]
    listed = ", ".join(pools)
    draining = [each.worker for each in others if each.barred == "draining"]
    if others and len(draining) == len(others):
        return Blocked(
            "ALL_DRAINING",
            f"every other Worker of Pool {listed} is draining as well ({', '.join(sorted(draining)[:3])}), and none "
            "takes new lives; add Workers, or cancel a drain",
        )
    kinds = Counter(each.barred or ("full" if each.believed_full() else "about to be full") for each in others)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "there is none"
    return Blocked(
        "NO_FREE_SLOT",
        f"no free slot for DigitalID {request.digital_id}: of the {len(others)} other Workers of Pool {listed}: {told};"
        " add Workers, or make it eligible for another Pool",
    )
