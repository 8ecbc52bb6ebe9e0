"""Which Infer-Controllers serve each cell, as they have said there: what Dispatch passes input on to.

A controller that does not serve the cell of a live could only refuse its input. The lists are read in the background,
each cell's alone: no request waits for the store of another cell, and of a cell that is away the last list is used.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from dhsched.dispatch.cells.served import ServedCell
from dhsched.errors import StoreError, StoreUnavailable

READ_S = 1.0  # A list is read again after this.


class ControllersOfCells:
    """The lists of one replica. `of_live` returns the cell of a live."""

    def __init__(self, cells: Sequence[ServedCell], of_live: Callable[[str], ServedCell]) -> None:
        self._cells = cells
        self._of_live = of_live
        self._known: dict[str, list[str]] = {}
        self._read_at: dict[str, float] = {}
        self._reads: dict[str, asyncio.Task[None]] = {}

    async def serving(self, live: str | None) -> list[str]:
        """Return the URLs of the controllers that serve this live's cell, or any cell if `live` is None. Only the first
        list of a cell is waited for, and for None only until one names a controller. Raise StoreUnavailable if the cell
        of the live has never shown its list."""
        cells = self._cells if live is None else [self._of_live(live)]
        reads = [task for each in cells if (task := self._read(each)) is not None and each.name not in self._known]
        # A stream of many lives is served by any controller: a cell that stands still is not waited for.
        while reads and not (live is None and any(self._known.values())):
            _, pending = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
            reads = [*pending]
        if live is not None and cells[0].name not in self._known:
            # Without it, nobody could say whether a controller is missing or the cell is away.
            raise StoreUnavailable(f"cell {cells[0].name} cannot be asked for its Infer-Controllers now", unknown=False)
        return [*dict.fromkeys(url for each in cells for url in self._known.get(each.name, ()))]

    def _read(self, cell: ServedCell) -> asyncio.Task[None] | None:
        """Return the task that reads a cell's list now, if one is needed or under way."""
        now = asyncio.get_running_loop().time()
        if cell.name not in self._reads and not cell.trouble and now - self._read_at.get(cell.name, -READ_S) >= READ_S:
            self._reads[cell.name] = task = asyncio.create_task(self._keep(cell), name=f"controllers of {cell.name}")
            task.add_done_callback(lambda _: self._reads.pop(cell.name))
        return self._reads.get(cell.name)

    async def _keep(self, cell: ServedCell) -> None:
        with contextlib.suppress(StoreError):
            self._known[cell.name] = [each.url for each in await cell.promptly(cell.records.controllers.all)]
        self._read_at[cell.name] = asyncio.get_running_loop().time()
