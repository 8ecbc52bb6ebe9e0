"""The cells of a deployment: their names, their order, and the cell of each live.

The cells are fixed when the deployment is born: the n-th of N cells has every N-th bucket, for ever. Each cell keeps
the list (store/records/cells.py), and a service that was given another one does not start: it would look for lives in
the wrong cells. The first cell is the one where the configuration is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dhsched.cells.buckets import bucket_of
from dhsched.errors import BadSetting
from dhsched.types import check_id

CELLS_MAX = 64
DRAWS_MAX = 1_000  # In vain so often for 64 cells once in ten million creates; then the live is in another cell.


@dataclass(frozen=True, slots=True)
class NamedCell:
    """A cell as a setting names it: its name, and the URL of its store; empty for the store of all cells."""

    name: str
    url: str = ""


def read_cells(text: str) -> tuple[NamedCell, ...]:
    """Return the cells of a setting, `NAME` or `NAME=URL` of each, separated by spaces; raise BadSetting if it is not
    such a list. Empty for a deployment of one cell."""
    found: list[NamedCell] = []
    for part in text.split():
        name, equals, url = part.partition("=")
        if equals and not url:
            raise BadSetting(f"setting cells names no URL after {name}=; give one, or only the name")
        found.append(NamedCell(check_id(name, "name of a cell"), url))
    names = [each.name for each in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadSetting(f"setting cells names {', '.join(twice)} twice; each cell has a name of its own")
    if len(found) == 1:
        raise BadSetting(f"setting cells names one cell, {names[0]}; for one cell set cell, and not cells")
    if len(found) > CELLS_MAX:
        raise BadSetting(f"setting cells names {len(found)} cells; {CELLS_MAX} are the most")
    return tuple(found)


def cell_of(names: Sequence[str], live: str) -> str:
    """Return the cell of a live, which is `tenant/live_id`, among all cells in their order."""
    return names[bucket_of(live) % len(names)]


def refusal_of(given: Sequence[str], kept: Sequence[str], cell: str) -> str:
    """Return why a service with the cells `given` may not use `cell`, which keeps the list `kept`; empty if it may."""
    if [*given] == [*kept]:
        return ""
    return (
        f"cell {cell} belongs to a deployment of the cells {', '.join(kept)}, in this order, and this service was "
        f"given {', '.join(given)}; give every service the list that the cell has (settings cell and cells)"
    )


def draw_id(names: Sequence[str], tenant: str, wanted: str, draw: Callable[[], str]) -> str:
    """Return an id that falls into the cell `wanted`: the first such one that `draw` returns, of at most DRAWS_MAX."""
    live_id = draw()
    for _ in range(DRAWS_MAX):
        if cell_of(names, f"{tenant}/{live_id}") == wanted:
            break
        live_id = draw()
    return live_id
