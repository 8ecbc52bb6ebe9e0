"""Rebalancing over HTTP: how even a Pool is, which lives would move, and the request to move them once."""

from __future__ import annotations

import msgspec

from dhsched.client.models import pools as m
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.configuration import no_pool
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.moves.rebalance import SHOWN_MAX, consider, mode_of
from dhsched.types import check_id
from dhsched.web import Endpoint, Request


class RebalanceView(Part):
    """The endpoints of rebalancing, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="get_rebalance",
                method="GET",
                path="/v1/pools/{pool}/rebalance",
                handler=self.get,
                summary="How even a Pool is, and which lives would move to make it even.",
                tag="pools",
                path_type=p.PoolPath,
                replies={200: m.RebalanceOut},
                problems=["NOT_FOUND"],
            ),
            Endpoint(
                name="even_out_pool",
                method="POST",
                path="/v1/pools/{pool}/rebalance",
                handler=self.even_out,
                summary="Even out a Pool for some seconds, whatever its setting.",
                tag="pools",
                path_type=p.PoolPath,
                body=m.EvenOut,
                replies={200: m.RebalanceOut},
                problems=["NOT_FOUND"],
            ),
        ]

    async def even_out(self, asked: Request) -> m.RebalanceOut:
        shown = await self.get(asked)
        await self.context.records.fleet.even_out_for(shown.pool, 1000 * asked.body.seconds)
        config = self.context.fleet.pools[shown.pool]
        return msgspec.structs.replace(shown, mode=await mode_of(self.context, shown.pool, config))

    async def get(self, asked: Request) -> m.RebalanceOut:
        pool, context = check_id(asked.path.pool, "pool"), self.context
        await context.fleet.refresh()
        config = context.fleet.pools.get(pool)
        if config is None:
            raise no_pool(pool)
        advice, _ = await consider(context, pool, config, SHOWN_MAX)
        shown = sorted(
            (each for each in context.fleet.view.workers.values() if each.pool == pool and not each.barred),
            key=lambda each: each.worker,
        )
        return m.RebalanceOut(
            pool=pool,
            mode=await mode_of(context, pool, config),
            spread_pct=config.rebalance_spread_pct,
            moves_max=config.rebalance_moves_max,
            lives=sum(each.lives for each in advice),
            advice=[m.AdviceOut(each.source, each.target, each.lives) for each in advice],
            workers=[m.HoldingOut(each.worker, each.load, each.capacity) for each in shown[:SHOWN_MAX]],
        )
