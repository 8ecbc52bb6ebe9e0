"""The store over HTTP: its home, its replicas, what is known to be lost; and the operator's new term."""

from __future__ import annotations

from dhsched.client.models import store as m
from dhsched.client.models.base import UNSET
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.context import DispatchContext
from dhsched.ownership import outcomes as o
from dhsched.store.homes import shown
from dhsched.web import Endpoint, Problem, Request


class StoreView(Part):
    """The endpoints of the store, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="get_store",
                method="GET",
                path="/v1/store",
                handler=self.get,
                summary="The store: its home, its replicas, and what is known to be lost.",
                tag="store",
                query=p.CellQuery,
                replies={200: m.StoreOut},
                problems=["NOT_FOUND"],
            ),
            Endpoint(
                name="begin_term",
                method="POST",
                path="/v1/store/new-term",
                handler=self.begin_term,
                summary="Begin a new term: every live is placed anew, at once.",
                tag="store",
                query=p.CellQuery,
                body=m.BeginTerm,
                replies={200: m.TermOut},
                problems=["NOT_FOUND", "STALE"],
            ),
        ]

    async def get(self, asked: Request) -> m.StoreOut:
        context = self.context
        refuse_other_cell(context, asked.query)
        store, homes = context.store, context.store.homes
        found = await store.records.server.standing()
        settling = store.link.settling
        return m.StoreOut(
            by=context.replica,
            address=store.link.address.redacted(),
            server=str(store.link.server),
            home=shown(homes.home),
            pos=await store.records.fleet.position(),
            term=context.fleet.term,
            homes=[m.HomeOut(shown(each.name), each.pos, each.at) for each in homes.homes],
            appendonly=found.appendonly,
            replicas=[m.StoreReplicaOut(each.address, each.state, each.behind_bytes) for each in found.replicas],
            losses=[m.LossOut(shown(each.home), each.told, each.kept, each.calls) for each in homes.losses],
            settled_by=0 if settling is None else settling.required.replicas,
            unsettled="" if settling is None else settling.trouble,
        )

    async def begin_term(self, asked: Request) -> m.TermOut:
        refuse_other_cell(self.context, asked.query)
        outcome = await self.context.terms.begin(asked.body.term, asked.body.reason or "an operator asked for it")
        if not isinstance(outcome, o.NewTerm):
            term = self.context.fleet.term
            raise Problem("STALE", f"the term is {term} by now, not {asked.body.term}; read it, then ask again")
        return m.TermOut(outcome.term, outcome.floor)


def refuse_other_cell(context: DispatchContext, query: p.CellQuery) -> None:
    """Raise NOT_FOUND if the request names a cell, and not this one."""
    own = context.store.keys.cell_name
    if query.cell not in (UNSET, own):
        raise Problem("NOT_FOUND", f"cell {query.cell} does not exist; this is cell {own}", cell=query.cell)
