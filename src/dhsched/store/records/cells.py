"""The list of a deployment's cells, of which each cell keeps a copy from its birth (cells/fixed.py)."""

from __future__ import annotations

from collections.abc import Sequence

from dhsched.cells.fixed import refusal_of
from dhsched.errors import StoreIncompatible
from dhsched.store.records.part import Part
from dhsched.store.steps.replies import text

NUMBERS_APART = 1_000_000
"""Worker numbers between the first one of a cell and that of the next: two Workers of one name in two cells have two
WorkerIDs, for those who read logs. Nothing relies on it: a new term, a home or a million boots lead to numbers that
another cell may have, too, and a token names the cell."""


class CellRecords(Part):
    """The list of cells that a cell keeps."""

    async def refuse_others(self, names: Sequence[str]) -> None:
        """Raise StoreIncompatible if this cell belongs to other cells than `names`. A new cell of several takes the
        list; a cell that a deployment of one cell has used can never be one of several, because its lives would be
        looked for elsewhere. A deployment of one cell writes nothing."""
        cell = self._keys.cell_name
        kept = await self._call("GET", "cells")
        if kept is None and len(names) > 1:
            issued = names.index(cell) * NUMBERS_APART
            (kept,) = await self._run("join_cells", " ".join(names), issued, counted=True)
            if not kept:
                raise StoreIncompatible(
                    f"cell {cell} has Workers or lives of a deployment of one cell, and the cells of a deployment are "
                    "fixed at its birth; name new cells"
                )
        if kept is not None and (refused := refusal_of(names, text(kept).split(), cell)):
            raise StoreIncompatible(refused)

    async def keep(self, names: Sequence[str]) -> None:
        """Write the list, of which this cell is one, if the cell has none: it has forgotten what it was told before."""
        await self._call("SET", "cells", "", " ".join(names), "NX")
