"""Rebalancing: move lives between the Workers of a Pool, at boundaries, until the Pool is even (paper, 6.2).

placement/rebalance.py decides which Workers should give lives to which, from what each will hold once the moves under
way are done. A Pool is `off`, `advise` (the moves are only logged) or `act`; it is also `act` while somebody has it
evened out once, which ends by itself after some seconds unless it is requested again. To act is to reserve a slot:
from there on the move is like that of a drain (cutover.py), but never forced: a move that finds no boundary expires,
and its live stays. Replicas take turns, so that they do not all move the same surplus; two turns at once would cost a
few moves.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from dhsched.client.models import pools as m
from dhsched.dispatch.commit import retry_unknown
from dhsched.dispatch.context import DispatchContext
from dhsched.ownership import outcomes as o
from dhsched.placement.rebalance import Advice, Holding, advise
from dhsched.store.records.lives import LiveOnWorker

log = structlog.get_logger(__name__)
SHOWN_MAX = 1_000  # Moves that advice has at most; further ones are left out.
LOOKED_AT_MAX = 16  # Times that advice is made anew after reading givers' lives; then it has the givers read so far.


class Rebalancing:
    """The rebalancing loop of one replica."""

    def __init__(self, context: DispatchContext) -> None:
        self._context = context
        self._under_way: set[str] = set()
        self.advice: dict[str, list[Advice]] = {}
        """The moves that the last round of this replica found for each Pool, whether or not it made them."""

    async def round(self) -> None:
        for pool, config in [*self._context.fleet.pools.items()]:
            mode = await mode_of(self._context, pool, config)
            if mode != "off":
                await self._even_out(pool, config, mode)
            else:
                self._under_way.discard(pool)
                self.advice.pop(pool, None)

    async def _even_out(self, pool: str, config: m.PoolConfig, mode: m.Rebalance) -> None:
        context = self._context
        acts = mode == "act"
        moves_max = config.rebalance_moves_max if acts else SHOWN_MAX
        if acts and not await context.records.fleet.take_turn(
            pool, context.replica, round(context.settings.rebalance_s * 1000)
        ):
            return
        advice, lives = await consider(context, pool, config, moves_max, under_way=pool in self._under_way)
        if advice:
            self._under_way.add(pool)
        else:
            self._under_way.discard(pool)
        if advice != self.advice.get(pool, []):
            told = [f"{each.lives} from {each.source} to {each.target}" for each in advice]
            log.info("rebalancing", pool=pool, mode=mode, moves=told)
        self.advice[pool] = advice
        if acts:
            for each in advice:
                for row in lives[each.source][: each.lives]:
                    await self._reserve(row, each)
                lives[each.source] = lives[each.source][each.lives :]

    async def _reserve(self, row: LiveOnWorker, advice: Advice) -> None:
        """Reserve a slot for the live; the target's report `prepared` continues the move (cutover.py)."""
        outcome = await retry_unknown(
            self._context,
            "reserve",
            lambda: self._context.store.reserve(live=row.live, expected=row.epoch, candidates=[advice.target]),
        )
        if isinstance(outcome, o.Reserved) and not outcome.again:
            log.info("live is to move", live=row.live, source=advice.source, target=outcome.target, cause="rebalance")


async def mode_of(context: DispatchContext, pool: str, config: m.PoolConfig) -> m.Rebalance:
    """Return what rebalancing does in the Pool now: its setting, or `act` while somebody has it evened out."""
    if config.rebalance != "act" and await context.records.fleet.is_evened_out(pool):
        return "act"
    return config.rebalance


async def consider(
    context: DispatchContext, pool: str, config: m.PoolConfig, moves_max: int, *, under_way: bool = False
) -> tuple[list[Advice], dict[str, list[LiveOnWorker]]]:
    """Return how many lives should move from which Worker to which, and each giver's movable lives, the quietest first.

    Whether a live is immovable is in its record, and only the records of givers are read: if a giver has fewer movable
    lives than assumed, the advice is made anew.
    """
    names = [each.worker for each in context.fleet.view.workers.values() if each.pool == pool and not each.barred]
    found = await asyncio.gather(*(context.records.workers.planned_load(worker) for worker in names))
    workers = {
        worker: Holding(load, context.fleet.view.workers[worker].capacity, movable)
        for worker, (load, movable) in zip(names, found, strict=True)
        if worker in context.fleet.view.workers and context.fleet.view.workers[worker].capacity
    }
    spread = config.rebalance_spread_pct / 100
    lives: dict[str, list[LiveOnWorker]] = {}
    for _ in range(LOOKED_AT_MAX):
        advice = advise(workers, spread=spread, under_way=under_way, moves_max=moves_max)
        unread = [each.source for each in advice if each.source not in lives]
        if not unread:
            return advice, lives
        for source in {*unread}:
            rows = [row for row in await context.records.lives.on_worker(source) if may_move(row)]
            lives[source] = sorted(rows, key=lambda row: (row.pending, row.live))
            workers[source] = replace(workers[source], movable=len(rows))
    return [each for each in advice if each.source in lives], lives


def may_move(row: LiveOnWorker) -> bool:
    return row.slot == "running" and not row.immovable and not row.target
