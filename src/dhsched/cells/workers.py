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
from zlib import crc32

from dhsched.types import check_id, check_worker


class Registration(NamedTuple):
    """A Worker's boot in one cell. Two cells may give the same WorkerID to two boots."""

    cell: str
    worker: str

    def __str__(self) -> str:
        """Return the text of the lock file: `cell/worker`, or the WorkerID alone where there is only one cell."""
        return f"{self.cell}/{self.worker}" if self.cell else self.worker


def read_registration(text: str) -> Registration:
    """Return the registration of a lock file; raise BadId if it is none."""
    cell, slash, worker = text.rpartition("/")
    return Registration(check_id(cell, "cell") if slash else "", check_worker(worker))


class Slots(NamedTuple):
    """The slots of a Worker's Pool in one cell."""

    free: int
    capacity: int

    @property
    def free_share(self) -> float:
        """Return the free share of the Pool; 0 where it has no slot."""
        return self.free / max(1, self.capacity)


def choose_cell(last: Registration | None, slots: Mapping[str, Slots], *, named: str = "", name: str = "") -> str:
    """Return the cell to register in: the one that was named, else that of the lock file, else the one with the least
    free share of the Worker's Pool, of these the one with the fewest slots, and of equals another one for each `name`.

    `slots` has every cell that answers; it may not be empty.
    """
    if named:
        return named
    if last is not None and last.cell in slots:
        return last.cell

    def order(cell: str) -> tuple[float, int, int]:
        return slots[cell].free_share, slots[cell].capacity, crc32(f"{cell} {name}".encode())

    return min(slots, key=order)


def may_register(runs: int) -> bool:
    """Return whether a process may register, in whatever cell: it has no runtime, not even one that is stopping."""
    return runs == 0


def replaced(last: Registration | None, cell: str) -> str:
    """Return the WorkerID that a new boot replaces in this cell; that of another cell may be somebody else's here."""
    return last.worker if last is not None and last.cell == cell else ""


def is_own(mine: Registration | None, theirs: Registration) -> bool:
    """Return whether a table or another answer that arrives is for this registration."""
    return mine == theirs
