"""A controller over several cells: the input of a live goes to its cell, and a Worker names the cell that it is in.

In each cell the controller is what a controller of one cell is: its own links, pulls and limits. A cell that is away is
an error of input for its lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import web
from prometheus_client import CollectorRegistry

from dhsched.access.ring import KeyRing, open_ring_over
from dhsched.cells.fixed import cell_of
from dhsched.errors import DhschedError, StoreError
from dhsched.infer import events, push, stream
from dhsched.infer.append_rules import store_full
from dhsched.infer.cell import InferCell, Shared, open_in_cell, open_shared, open_store, why_not_ready
from dhsched.infer.context import Connections, InferContext
from dhsched.infer.pull import PATH as PULL
from dhsched.infer.pulls import Appended
from dhsched.infer.settings import InferSettings
from dhsched.input_routes import RAW
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.store.link.address import Address
from dhsched.store.reaching import ReachedCell, all_served, cell_addresses, report_bug
from dhsched.store.steps.redis import Append
from dhsched.tasks import cancel
from dhsched.web import MINT, Problem, Service, make_app
from dhsched.web.figures import CellFigures, InCells
from dhsched.web.problems import problem_of


class ServedCell(ReachedCell):
    """One cell of one controller: `part` is there once it is served."""

    def __init__(self, name: str, address: Address) -> None:
        super().__init__(name, address)
        self.part: InferCell
        self.registry = CollectorRegistry()

    async def serve(
        self, settings: InferSettings, shared: asyncio.Future[Shared], *, cells: Sequence[str], limits: Limits
    ) -> None:
        """Connect, and serve the cell until cancelled."""
        async with AsyncExitStack() as stack:
            self.store, self.records = await self.until_done(
                lambda: stack.enter_async_context(
                    open_store(self.address, self.name, settings, cells=cells, limits=limits)
                )
            )
            self.connected.set()
            given = await asyncio.shield(shared)
            self.part = await self.until_done(lambda: self._open(given))
            self.now_served()
            await asyncio.Event().wait()

    async def _open(self, shared: Shared) -> InferCell:
        self.registry = CollectorRegistry()  # An attempt that failed has left its metrics in the one before.
        return await open_in_cell(self.store, self.records, shared, registry=self.registry, cell=self.name)

    def why_not_ready(self) -> str:
        return self.trouble or why_not_ready(self.store)


class ManyCells:
    """The inputs of a controller over several cells (`Inputs`)."""

    memory_share = 0.0
    """A cell that is full refuses the items of its lives, and no whole stream."""

    def __init__(self, cells: Sequence[ServedCell], shared: Shared) -> None:
        self.settings: InferSettings = shared.settings
        self.service: Service = shared.service
        self.connections: Connections = shared.connections
        self._names = [each.name for each in cells]
        self._by_name = {each.name: each for each in cells}

    def of(self, live: str) -> InferContext:
        """Return the context of this live's cell; raise CellAway while that is not served, or away for a while."""
        cell = self._cell(live)
        cell.refuse_if_away()
        return cell.part.context

    def _cell(self, live: str) -> ServedCell:
        return self._by_name[cell_of(self._names, live)]

    def append_soon(self, row: Append, done: Appended) -> None:
        try:
            context = self.of(row.live)
            full = store_full(context.memory_share, self.settings.memory_max)
            if full is not None:
                raise full
        except (StoreError, Problem) as error:
            # An outcome comes later than the call, as that of every row.
            asyncio.get_running_loop().call_soon(done, error)
            return
        context.pulls.append_soon(row, done)

    def pushed(self, outcome: o.AppendOutcome, seconds: float, tenant: str, live: str) -> None:
        self._cell(live).part.context.metrics.pushed(outcome, seconds, tenant)


class InferOverCells:
    """A controller over several cells, ready to be served."""

    def __init__(self, cells: Sequence[ServedCell], shared: Shared) -> None:
        self.ring: KeyRing = shared.ring
        self._cells = cells
        self._by_name = {each.name: each for each in cells}
        inputs = ManyCells(cells, shared)
        pulls = web.get(PULL, self._serve_pulls, name="pull_link")
        raw = [pulls, *stream.routes(inputs), *events.routes(inputs)]
        self.app = make_app(shared.service, [*push.endpoints(inputs), MINT], raw, RAW)
        self.app.on_shutdown.append(shared.connections.close_sockets)

    async def _serve_pulls(self, request: web.Request) -> web.StreamResponse:
        name = request.query.get("cell", "")
        try:
            if name not in self._by_name:
                raise Problem("NOT_FOUND", f"cell {name} does not exist; there are {', '.join(self._by_name)}")
            cell = self._by_name[name]
            cell.refuse_unless_served()
        except DhschedError as error:
            return problem_of(error).response()
        return await cell.part.pull_text.serve(request)

    async def announce_until(self, url: str, stop: asyncio.Event) -> None:
        """Announce this controller in every cell, from when that is served."""
        await asyncio.gather(*(self._announce(each, url, stop) for each in self._cells))

    async def _announce(self, cell: ServedCell, url: str, stop: asyncio.Event) -> None:
        stopping = asyncio.ensure_future(stop.wait())
        served = asyncio.ensure_future(cell.served.wait())
        try:
            await asyncio.wait((stopping, served), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel(stopping, served)
        if not cell.trouble:
            await cell.part.announce_until(url, stop)


@asynccontextmanager
async def open_cells(settings: InferSettings, *, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[InferOverCells]:
    """Serve all cells that can be reached during the block, and the others as soon as they can be."""
    cells = [ServedCell(*each) for each in cell_addresses(settings.cells, settings.store)]
    names = [each.name for each in cells]
    shared: asyncio.Future[Shared] = asyncio.get_running_loop().create_future()
    serve = partial(ServedCell.serve, settings=settings, shared=shared, cells=names, limits=limits)

    def troubles() -> Mapping[str, str]:
        return {each.name: each.why_not_ready() for each in cells}

    async def ready() -> Sequence[str]:
        found = troubles()
        return [] if not all(found.values()) else [f"cell {name}: {trouble}" for name, trouble in found.items()]

    async with AsyncExitStack() as stack:
        tasks = [asyncio.create_task(serve(each), name=each.name) for each in cells]
        stack.push_async_callback(cancel, *tasks)
        for task in tasks:
            task.add_done_callback(report_bug)
        ring = await stack.enter_async_context(open_ring_over(cells))
        made = await stack.enter_async_context(open_shared(settings, ring, ready=ready, first=names[0]))
        made.service.cells = troubles
        made.service.registry.register(CellFigures(troubles))
        made.service.registry.register(InCells(lambda: {each.name: each.registry for each in cells}))
        shared.set_result(made)
        await all_served(cells)
        yield InferOverCells(cells, made)
