"""Names of cells that lie on different primaries of a Valkey Cluster, pure.

The hash slot of a cell follows from its name alone, and every slot is on one primary. So names are tried, in order,
until they fall on different primaries. Which primary serves a cell of some name is answered by the caller
(store/server/shards.py): a slot may be moved to another primary at any time, and the cell goes with its slot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from dhsched.errors import BadSetting

NUMBERS_MAX = 10_000  # A primary that serves the slots of none of so many names gets no cell.
STEM = "c"

PrimaryOf = Callable[[str], str]
"""Returns the id of the primary that serves a cell of this name; empty if no primary does."""


def choose_names(count: int, primaries: Collection[str], primary_of: PrimaryOf, *, stem: str = STEM) -> list[str]:
    """Return `count` names, each `stem` and a number, so that the numbers of cells on two primaries differ by one at
    most. Numbers are as small as that allows. Raise BadSetting if too few slots are served."""
    rounds = -(-count // max(1, len(primaries)))
    found: dict[str, list[int]] = {primary: [] for primary in primaries}
    for number in range(1, NUMBERS_MAX + 1):
        if all(len(numbers) >= rounds for numbers in found.values()):
            break
        if (primary := primary_of(f"{stem}{number}")) in found:
            found[primary].append(number)
    taken: list[int] = []
    for row in zip_longest(*found.values()):
        taken += sorted(number for number in row if number is not None)[: count - len(taken)]
    if len(taken) < count:
        raise BadSetting(
            f"only {len(taken)} of {count} cells have a place: no primary serves the slots of further names; give "
            "every slot of the cluster to a primary (CLUSTER ADDSLOTSRANGE)"
        )
    return [f"{stem}{number}" for number in sorted(taken)]


@dataclass(frozen=True, slots=True)
class Crowded:
    """Several `cells` on one primary, while the primary `free` has no cell."""

    cells: tuple[str, ...]
    primary: str
    free: str


def find_crowded(places: Mapping[str, str], primaries: Collection[str]) -> Crowded | None:
    """Return the primary with the most cells, if it has several and another one has none. `places` has the primary of
    each cell."""
    cells_on: defaultdict[str, list[str]] = defaultdict(list)
    for cell, primary in places.items():
        cells_on[primary].append(cell)
    free = [primary for primary in primaries if primary not in cells_on]
    fullest = max(cells_on, key=lambda primary: len(cells_on[primary]), default="")
    if not free or len(cells_on[fullest]) < 2:
        return None
    return Crowded(tuple(cells_on[fullest]), fullest, free[0])
