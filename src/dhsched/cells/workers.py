"""A Worker among many cells: in which cell it registers, and which slot tables it takes.

A Worker is registered in one cell at a time, and registers only while it runs nothing: so a runtime always belongs to
the registration of now, and the agent's own rule (ownership/agent.py) holds capacity over all cells. The record that a
Worker leaves in another cell is silent from then on; that cell calls it lost, as any Worker that is silent.

What arrives late is told apart by its registration, not by its home: an agent takes the table of another home whatever
it has, and a table of another cell would be one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Registration(NamedTuple):
    """A Worker's boot in one cell. Two cells may give the same WorkerID to two boots."""

    cell: str
    worker: str


def choose_cell(last: Registration | None, free_shares: Mapping[str, float], *, named: str = "") -> str:
    """Return the cell to register in: the one that was named, else that of the lock file, else the emptiest.

    `free_shares` has the free share of the Worker's Pool in every cell of the map that answers; it may not be empty.
    """
    if named:
        return named
    if last is not None and last.cell in free_shares:
        return last.cell
    return max(sorted(free_shares), key=lambda cell: free_shares[cell])


def may_register(runs: int) -> bool:
    """Return whether a process may register, in whatever cell: it has no runtime, not even one that is stopping."""
    return runs == 0


def replaced(last: Registration | None, cell: str) -> str:
    """Return the WorkerID that a new boot replaces in this cell; that of another cell may be somebody else's here."""
    return last.worker if last is not None and last.cell == cell else ""


def is_own(mine: Registration | None, theirs: Registration) -> bool:
    """Return whether a table or another answer that arrives is for this registration."""
    return mine == theirs
