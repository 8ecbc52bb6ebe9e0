"""A replica over several cells, from its settings to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random

from aiohttp import web

from dhsched.access.development import development_key, noted
from dhsched.access.ring import open_ring_over
from dhsched.dispatch.cells.copies import COPY_S
from dhsched.dispatch.cells.counts import LivesElsewhere, TenantCounts
from dhsched.dispatch.cells.front import CHECK_S, Front
from dhsched.dispatch.cells.served import ServedCell
from dhsched.dispatch.console import console_routes
from dhsched.dispatch.loops import Round, running
from dhsched.dispatch.opening import Shared, replica_name
from dhsched.dispatch.passing import Passing
from dhsched.input_routes import INPUT
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.settings import DispatchSettings
from dhsched.store.reaching import all_served, cell_addresses, first_reached, report_bug
from dhsched.tasks import cancel
from dhsched.web import make_app, make_service, open_gate, serve_role
from dhsched.web.figures import CellFigures, InCells


async def run_cells(settings: DispatchSettings, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Run one replica over the cells of its settings until `stop` is set."""
    async with open_front(settings) as front:
        with noted(await development_key(settings, front.ring), say) as listening:
            await serve_role(settings, front_app(front, settings), stop=stop, say=listening)


@asynccontextmanager
async def open_front(
    settings: DispatchSettings, *, limits: Limits = DEFAULT_LIMITS, with_loops: bool = True
) -> AsyncIterator[Front]:
    """Serve all cells that can be reached during the block, and the others as soon as they can be."""
    cells = [ServedCell(*each) for each in cell_addresses(settings.cells, settings.store)]
    names = [each.name for each in cells]
    front, counts = Front(cells), TenantCounts(cells)
    for each in cells:
        each.lives_elsewhere = LivesElsewhere(counts, each)
    shared: asyncio.Future[Shared] = asyncio.get_running_loop().create_future()
    serve = partial(ServedCell.serve, settings=settings, shared=shared, cells=names, limits=limits)
    async with AsyncExitStack() as stack:
        tasks = [asyncio.create_task(serve(each, with_loops=with_loops), name=each.name) for each in cells]
        stack.push_async_callback(cancel, *tasks)
        for task in tasks:
            task.add_done_callback(report_bug)
        await first_reached(cells)
        await front.copies.round()  # A cell that has forgotten its keys gets them back before it makes others.
        ring = front.ring = await stack.enter_async_context(open_ring_over(cells))
        name = replica_name(settings)
        service = front.service = make_service(settings, role="dispatch", instance=name, ready=front.ready)
        service.cells = lambda: front.troubles
        service.audit = front.note
        service.registry.register(CellFigures(lambda: front.troubles))
        service.registry.register(InCells(lambda: {each.name: each.registry for each in cells}))
        shared.set_result(Shared(name=name, service=service, ring=ring, settings=settings, first=names[0]))
        await all_served(cells)
        await stack.enter_async_context(open_gate(service, settings, ring))
        if with_loops:
            loops: dict[str, tuple[Round, float]] = {
                "copies": (front.copies.round, COPY_S),
                "checks": (front.keep_checked, CHECK_S),
            }
            await stack.enter_async_context(running(loops, rng=Random()))
        yield front


def front_app(front: Front, settings: DispatchSettings) -> web.Application:
    """Return the application that serves all cells."""
    passing = Passing(front.first_served().context, front.controllers.serving)
    raw = [front.worker_link(), *passing.routes(), *console_routes(settings.room)]
    front.service.passed_on = frozenset(each.name for each in INPUT)
    app = make_app(front.service, front.endpoints(), raw, INPUT)
    app.on_shutdown.append(passing.stop)
    app.on_cleanup.append(passing.close)
    return app
