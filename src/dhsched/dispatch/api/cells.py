"""`GET /v1/cells`: the cells of the deployment, and what is free in each. A Worker chooses its cell by it."""

from __future__ import annotations

from msgspec import structs

from dhsched.access.callers import Caller
from dhsched.client.models import summary as m
from dhsched.client.models.base import UNSET
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.part import Part
from dhsched.store.homes import shown
from dhsched.web import Endpoint, Request


class CellView(Part):
    """The endpoint of cells, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="list_cells",
                method="GET",
                path="/v1/cells",
                handler=self.list,
                summary="The cells of the deployment, in their order, and what is free in each.",
                tag="fleet",
                query=p.CellsQuery,
                replies={200: m.CellList},
            )
        ]

    async def list(self, asked: Request) -> m.CellList:
        """Return the one cell that this part is of."""
        context, wanted = self.context, asked.query.pool
        workers = [each for each in context.fleet.view.workers.values() if wanted in (UNSET, each.pool)]
        placeable = [each for each in workers if not each.barred]
        cell = m.CellOut(
            name=context.store.keys.cell_name,
            ready=True,
            trouble="",
            workers=len(workers),
            lives=await context.records.lives.open_count(),
            free=sum(max(0, each.capacity - each.load) for each in placeable),
            capacity=sum(each.capacity for each in placeable),
            home=shown(context.store.homes.home),
        )
        return m.CellList([shown_to(asked.caller, cell)])


def shown_to(caller: Caller, cell: m.CellOut) -> m.CellOut:
    """Return what a caller may see: a Worker's key learns which cells are ready and what is free for it, and nothing of
    the stores and of other tenants."""
    if caller.admin or "fleet:read" in caller.scopes:
        return cell
    return structs.replace(cell, trouble="" if cell.ready else "not ready", workers=0, lives=0, home="")
