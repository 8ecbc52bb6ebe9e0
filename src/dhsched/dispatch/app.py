"""One dispatch replica: build its parts, start its loops, serve its API, and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from dhsched.access.development import development_key, noted
from dhsched.access.ring import open_ring
from dhsched.dispatch.cells.app import run_cells
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.loops import running
from dhsched.dispatch.opening import Shared, missing, open_in_cell, open_store, replica_name
from dhsched.dispatch.replica import Replica
from dhsched.dispatch.telemetry.traces import tracing
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from dhsched.store.server.embedded import given_or_embedded
from dhsched.web import make_service, open_gate, serve_role

__all__ = ["Replica", "open_context", "run_dispatch"]


async def run_dispatch(settings: DispatchSettings, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Run one replica until `stop` is set."""
    if settings.cells:
        await run_cells(settings, stop, say)
        return
    async with (
        given_or_embedded(settings.store) as address,
        open_context(address, settings) as context,
        tracing(context) as traces,
    ):
        replica = Replica(context)
        with noted(await development_key(settings, context.ring), say) as listening:
            async with running({**replica.loops(), **traces}, rng=context.rng):
                await serve_role(settings, replica.app(), stop=stop, say=listening)


@asynccontextmanager
async def open_context(
    address: Address, settings: DispatchSettings, *, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[DispatchContext]:
    """Connect to the store of the only cell, read the first view, yield the context, and close everything when the
    block is left."""
    context: DispatchContext | None = None

    async def ready() -> Sequence[str]:
        return ("it is starting",) if context is None else await missing(context)

    async with open_store(address, settings.cell, settings, cells=[settings.cell], limits=limits) as (store, records):
        name = replica_name(settings)
        service = make_service(settings, role="dispatch", instance=name, ready=ready)
        shared = Shared(name=name, service=service, ring=await open_ring(store.link, store.keys), settings=settings)
        async with open_in_cell(store, records, shared, registry=service.registry) as context:
            service.audit = context.audit.note
            async with open_gate(service, settings, shared.ring):
                yield context
