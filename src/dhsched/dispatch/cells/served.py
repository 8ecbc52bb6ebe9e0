"""One cell of a replica: its store is connected to until it answers, and from then on the cell is served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TypeVar

from prometheus_client import CollectorRegistry

from dhsched.dispatch.context import DispatchContext, Elsewhere
from dhsched.dispatch.loops import running
from dhsched.dispatch.opening import Shared, missing, open_in_cell, open_store
from dhsched.dispatch.replica import Replica
from dhsched.dispatch.telemetry.traces import tracing
from dhsched.errors import StoreUnavailable
from dhsched.ownership.limits import Limits
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from dhsched.store.reaching import ReachedCell
from dhsched.web import Request
from dhsched.web.endpoints import Handler

T = TypeVar("T")
PROMPT_S = 3.0  # A cell that has not answered by then is left out of a list.


class ServedCell(ReachedCell):
    """One cell of one replica. What it has is there once it is served."""

    def __init__(self, name: str, address: Address) -> None:
        super().__init__(name, address)
        self.context: DispatchContext
        self.replica: Replica
        self.registry = CollectorRegistry()
        self.lives_elsewhere: Elsewhere | None = None
        self._handlers: Mapping[str, Handler] = {}

    async def serve(
        self,
        settings: DispatchSettings,
        shared: asyncio.Future[Shared],
        *,
        cells: Sequence[str],
        limits: Limits,
        with_loops: bool = True,
    ) -> None:
        """Connect, and serve the cell until cancelled."""
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            self.store, self.records = await self.until_done(
                lambda: enter(open_store(self.address, self.name, settings, cells=cells, limits=limits))
            )
            self.connected.set()
            given = await asyncio.shield(shared)
            context = self.context = await self.until_done(lambda: enter(self._open(given)))
            context.lives_elsewhere = self.lives_elsewhere
            replica = self.replica = Replica(context)
            self._handlers = {each.name: each.handler for each in replica.endpoints()}
            if with_loops:
                loops = {**replica.loops(), **await enter(tracing(context))}
                await enter(running(loops, rng=context.rng))
            self.now_served()
            await asyncio.Event().wait()

    def _open(self, shared: Shared) -> AbstractAsyncContextManager[DispatchContext]:
        # An attempt that failed has left its metrics in the registry before, and what it wanted to be told of.
        self.registry = CollectorRegistry()
        self.store.homes.on_entered.clear()
        return open_in_cell(self.store, self.records, shared, registry=self.registry, cell=self.name)

    async def missing(self) -> str:
        """Return why requests for this cell's lives fail now; empty if they need not."""
        if self.trouble:
            return self.trouble
        if not await self.reachable_soon():
            return "its store cannot be reached"
        return "; ".join(await missing(self.context))

    async def answer(self, name: str, asked: Request) -> object:
        """Return what the endpoint with this name answers in this cell, as if it were the only one."""
        self.refuse_if_away()
        return await self._handlers[name](asked)

    @property
    def answers_now(self) -> bool:
        """Whether its store seems to answer: a cell that does not is given no create that may go elsewhere."""
        return self.reachable and self.context.fleet.age_s <= self.context.settings.fresh_s

    async def promptly(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` returns, for what other cells are asked, too: a cell that is away, or does not answer
        within PROMPT_S, does not hold them up."""
        self.refuse_unless_served()
        if not await self.reachable_soon():
            raise StoreUnavailable(f"the store of cell {self.name} cannot be reached", unknown=False)
        try:
            async with asyncio.timeout(PROMPT_S):
                return await ask()
        except TimeoutError:
            raise StoreUnavailable(f"cell {self.name} did not answer within {PROMPT_S:g} s", unknown=True) from None
