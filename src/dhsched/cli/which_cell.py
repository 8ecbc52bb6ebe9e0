"""The cell of a verb that uses the store directly, and the URL of that cell's store."""

from __future__ import annotations

import os

from dhsched.cells.fixed import read_cells
from dhsched.errors import BadSetting

CELLS = "DHSCHED_CELLS"


def written_cell(store: str, cell: str | None) -> tuple[str, str]:
    """Return the store's URL and the name of the cell where keys are written: the one that was named, else the first
    of DHSCHED_CELLS, else the only one."""
    named = read_cells(os.environ.get(CELLS, ""))
    return _found(store, cell or (named[0].name if named else "main"))


def one_cell(store: str, cell: str | None) -> tuple[str, str]:
    """Return the store's URL and the name of the cell that a verb is about. Where DHSCHED_CELLS has several, one of
    them must be named."""
    named = read_cells(os.environ.get(CELLS, ""))
    if named and cell is None:
        names = ", ".join(each.name for each in named)
        raise BadSetting(
            f"the deployment has the cells {names} ({CELLS}), and this is done to one: name it with --cell"
        )
    return _found(store, cell or "main")


def _found(store: str, cell: str) -> tuple[str, str]:
    urls = {each.name: each.url for each in read_cells(os.environ.get(CELLS, ""))}
    return urls.get(cell) or store, cell
