"""The cells of a deployment as a service reaches them: one that is away is tried again, and holds up no other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import structlog

from dhsched.cells.fixed import read_cells
from dhsched.errors import BadSetting, CellAway, StoreError, StoreIncompatible, StoreUnavailable
from dhsched.store.link.address import Address, parse_address
from dhsched.store.records import Records
from dhsched.store.steps.redis import RedisStore
from dhsched.tasks import first

log = structlog.get_logger(__name__)

AGAIN_S = 1.0  # Time between two attempts to reach the store of a cell.
TRIED_S = 3.0  # So long a service waits for an attempt at each of its cells; then it starts with those it has reached.
START_S = 30.0  # A service that reaches no cell within this time does not start.
PATIENCE_S = 1.0  # A request for a cell whose store has been away for longer is refused at once.
AWAY_S = 0.5  # A request to all cells does not wait longer for a store that is away; one to its own cell does.
CHECK_S = 0.02  # Time between two checks whether a store that was away is connected again.
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellAddress(Address):
    """The address of the store of one cell of several. Messages name the cell: all cells may share one store."""

    cell: str = ""

    def redacted(self) -> str:
        return f"{Address.redacted(self)} (cell {self.cell})"


class ReachedCell:
    """One cell. `trouble` says why it is not served, and is empty once it is. It stays served then: a store that goes
    away later is an error of each request, as where there is one cell."""

    def __init__(self, name: str, address: Address) -> None:
        self.name = name
        self.address = address
        self.store: RedisStore
        self.records: Records
        self.trouble = "its store was not reached yet"
        self.refused: StoreIncompatible | None = None
        """Why its store can never be used as it is now; None if it can, or is not known."""
        self.tried = asyncio.Event()
        self.connected = asyncio.Event()
        """Is set once `store` and `records` are there."""
        self.served = asyncio.Event()
        self._away_since: tuple[int, float] | None = None  # How often it had come back before, and when.

    @property
    def linked(self) -> bool:
        """Whether both links to its store are connected now."""
        return self.connected.is_set() and self.store.link.state == self.records.link.state == "connected"

    @property
    def reachable(self) -> bool:
        """Whether the cell is served, and its store can be reached now."""
        return not self.trouble and self.linked

    async def reachable_soon(self) -> bool:
        """Return whether the cell can be reached now, or within AWAY_S: a store that fails over may be back by then."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + AWAY_S
        while True:
            if self.trouble or self.linked or loop.time() >= give_up:
                return self.reachable
            await asyncio.sleep(CHECK_S)

    def refuse_if_away(self) -> None:
        """Raise CellAway if the cell is not served, or its store has been away for PATIENCE_S: a request that waits for
        it holds a place that requests for other cells need. The first ones wait, for a store that fails over."""
        if self.trouble:
            raise CellAway(f"cell {self.name} is not served: {self.trouble}")
        if self.store.link.state == "connected":
            self._away_since = None
            return
        now = asyncio.get_running_loop().time()
        # Nobody may have asked while it was back: what counts is this outage, not one before.
        outage = self.store.link.reconnects
        if self._away_since is None or self._away_since[0] != outage:
            self._away_since = (outage, now)
            return
        if now - self._away_since[1] >= PATIENCE_S:
            raise CellAway(f"the store of cell {self.name} cannot be reached; try again when it is back")

    def now_served(self) -> None:
        self.trouble = ""
        self.served.set()

    def refuse_unless_served(self) -> None:
        """Raise StoreUnavailable while the cell is not served."""
        if self.trouble:
            raise StoreUnavailable(f"cell {self.name} is not served: {self.trouble}", unknown=False)

    async def until_done(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Make attempts until one succeeds, and return what it returns."""
        while True:
            try:
                done = await attempt()
            except StoreError as error:
                if str(error) != self.trouble:
                    log.warning("a cell is not served", cell=self.name, reason=str(error))
                self.trouble = str(error)
                self.refused = error if isinstance(error, StoreIncompatible) else None
            else:
                self.refused = None
                return done
            finally:
                self.tried.set()
            await asyncio.sleep(AGAIN_S)


def cell_addresses(cells: str, store: str | None) -> list[tuple[str, Address]]:
    """Return name and address of each cell that the setting `cells` names. `store` is the URL of the shared store."""
    named = read_cells(cells)
    if store is None and any(not each.url for each in named):
        raise BadSetting("several cells need a store that runs already: give --store, or a URL for each in --cells")
    return [(each.name, cell_address(each.name, parse_address(each.url or store or ""))) for each in named]


def cell_address(cell: str, address: Address) -> CellAddress:
    """Return an address that names its cell in messages."""
    return CellAddress(cell=cell, **{each.name: getattr(address, each.name) for each in fields(Address)})


async def first_reached(cells: Sequence[ReachedCell]) -> ReachedCell:
    """Return the first cell of the deployment that is connected. Raise the error of a store that can never be used, and
    StoreUnavailable if no cell can be reached."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TRIED_S):
            for each in cells:
                await each.tried.wait()
    raise_refused(cells)  # Where every store refuses, none would ever be connected.
    await first(*(each.connected for each in cells), within_s=START_S)
    raise_refused(cells)
    for each in cells:
        if each.connected.is_set():
            return each
    raise StoreUnavailable(f"no cell can be reached; {cells[0].name}: {cells[0].trouble}", unknown=False)


def raise_refused(cells: Sequence[ReachedCell]) -> None:
    """Raise why the store of the first such cell can never be used as it is now."""
    for each in cells:
        if each.refused is not None:
            raise each.refused


async def all_served(cells: Sequence[ReachedCell]) -> None:
    """Wait until each cell that is connected is served: TRIED_S at most for the others once one is, START_S for the
    first one. Raise StoreUnavailable if none is."""
    if opening := [each for each in cells if each.connected.is_set()]:
        await first(*(each.served for each in opening), within_s=START_S)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TRIED_S):
            for each in opening:
                await each.served.wait()
    if not any(each.served.is_set() for each in cells):
        raise StoreUnavailable(f"no cell is served; {cells[0].name}: {cells[0].trouble}", unknown=False)


def report_bug(task: asyncio.Task[None]) -> None:
    """Log why the task that serves a cell has ended, if it was not cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a cell is not served any more", cell=task.get_name(), exc_info=error)
