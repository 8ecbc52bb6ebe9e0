"""Rebalancing over HTTP: how even a Pool is, and which lives would move."""

from __future__ import annotations

from dhsched.client.models import pools as m
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.configuration import no_pool
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.moves.rebalance import SHOWN_MAX, consider
from dhsched.types import check_id
from dhsched.web import Endpoint, Request


class RebalanceView(Part):
    """The endpoint of rebalancing, of one replica."""

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
            )
        ]

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
            mode=config.rebalance,
            spread_pct=config.rebalance_spread_pct,
            moves_max=config.rebalance_moves_max,
            lives=sum(each.lives for each in advice),
            advice=[m.AdviceOut(each.source, each.target, each.lives) for each in advice],
            workers=[m.HoldingOut(each.worker, each.load, each.capacity) for each in shown[:SHOWN_MAX]],
        )
