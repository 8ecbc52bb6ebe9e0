"""The cells in which a create is tried whose live id the server makes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TypeVar

OTHERS_MAX = 3  # Further cells that a create is tried in; then the first one answers.
C = TypeVar("C")


def cells_to_try(free: Mapping[C, int], rng: Random) -> list[C]:
    """Return the cells in which a create is tried, one after another: the emptier one of two random cells, then the
    others with free slots, the emptiest first, OTHERS_MAX at most.

    `free` has the free slots of every cell that can be asked, as far as the caller knows; it may not be empty.
    """
    cells = [*free]
    first = max(rng.sample(cells, min(2, len(cells))), key=lambda cell: free[cell])
    others = sorted((cell for cell in cells if cell is not first and free[cell]), key=lambda cell: -free[cell])
    return [first, *others[:OTHERS_MAX]]
