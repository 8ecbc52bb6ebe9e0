"""The move of a bucket: what any replica does next, given what it reads of the two cells.

    step        what is written                               not before
    announce    map: the next cell                            the bucket is where the map says
    close       old cell: away, to the next cell by m         both cells have that map, for ANNOUNCE_WAIT_S; and the old
                                                              cell asks no third one
    open        next cell: mine by m, asking the old one;     the old cell is closed
                and the map
    publish     map: the bucket is in the next cell           the next cell is open
    settle      next cell: asks nobody                        the old cell is closed, walked and empty

Nothing remembers how far a move has come but the cells: a replica that dies leaves nothing behind, and the next one
that reads the cells goes on. A cell that has forgotten says something else than before, and the plan begins again from
there: an old cell that is open once more is closed once more, a next cell that is not open is opened once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dhsched.cells.buckets import Bucket, is_blocked, is_closed
from dhsched.cells.maps import ANNOUNCE_WAIT_S, CellMap, Version, highest


@dataclass(frozen=True, slots=True)
class Reading:
    """What a replica has read of one cell: its bucket, its map, whether a walk found no record, and the cell's home.

    The home is that from before the walk.
    """

    bucket: Bucket
    map: CellMap
    empty: bool = False
    home: str = ""


@dataclass(frozen=True, slots=True)
class Announce:
    """Write a new version of the map: the bucket goes to `to`, by move `by`."""

    to: str
    by: int


@dataclass(frozen=True, slots=True)
class CopyMap:
    """Install this version of the map in the cell; nothing else can be done before."""

    cell: str
    version: Version


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done now: wait so long, and read again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Close:
    """Close the bucket in `cell`, which it leaves for `to` by move `by`."""

    cell: str
    to: str
    by: int


@dataclass(frozen=True, slots=True)
class Open:
    """Open the bucket in `cell` by move `by`, from `source`, and install the map there in the same script."""

    cell: str
    source: str
    by: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Write a new version of the map: the bucket is in `cell`, by move `by`."""

    cell: str
    by: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Let `cell` ask nobody any more, if its home is still the one that it had before the walk."""

    cell: str
    by: int
    home: str


Action = Announce | CopyMap | Wait | Close | Open | Publish | Settle


def plan(cells: Mapping[str, Reading], bucket: int, *, announced_s: float, want: str = "") -> list[Action]:
    """Return what to do now, by the highest map that was read; empty when the bucket is whole and nothing is wanted.

    `cells` are all that the map names: also a cell that the bucket left long ago may have forgotten it. `announced_s`
    is for how long, by the replica's own clock, it has seen the map of now in every cell. `want` is the cell that an
    operator has named.
    """
    newest = highest(reading.map for reading in cells.values())
    row = newest.rows[bucket]
    by, target = row.moving, cells[row.target].bucket
    late, owner = _late(cells)
    if late:
        return _close_late(cells, late, owner)
    if not row.source:
        return [Announce(want, by + 1)] if want not in ("", row.target) else []
    if target.by >= by:
        if row.next:
            return [Publish(row.target, by)]
        if want not in ("", row.target):
            return [Announce(want, by + 1)]
        return _settle(cells, row.target)
    source = cells[row.source].bucket
    if source.by >= by:
        return [Open(row.target, row.source, by)]
    if row.next and source.by < row.by:
        # The cell that the bucket is to leave has forgotten that it has it. It gets it back first: the next cell would
        # ask that one alone, and not the one before, which may have lives (mutant leaves-a-lost-cell).
        if row.was and cells[row.was].bucket.by < row.by:
            return _close(cells, row.was, to=row.source, by=row.by)
        return [Open(row.source, row.was, row.by)]
    behind = [name for name in (row.source, row.target) if cells[name].map.version < newest.version]
    if behind:
        return [CopyMap(name, newest.version) for name in behind]
    if announced_s < ANNOUNCE_WAIT_S:
        return [Wait(ANNOUNCE_WAIT_S - announced_s)]
    return _close(cells, row.source, to=row.target, by=by)


def _late(cells: Mapping[str, Reading]) -> tuple[list[str], str]:
    """Return the cells that have forgotten that the bucket has left them, and the one that has it by the last move."""
    mine = [name for name in cells if cells[name].bucket.state == "mine"]
    if not mine:
        return [], ""
    owner = max(mine, key=lambda name: cells[name].bucket.by)
    by, asked = cells[owner].bucket.by, cells[owner].bucket.asks
    names = sorted(name for name in cells if name in mine or name == asked)
    return [name for name in names if cells[name].bucket.by < by], owner


def _close_late(cells: Mapping[str, Reading], late: list[str], owner: str) -> list[Action]:
    free = [name for name in late if not is_blocked(cells[name].bucket, to=owner)]
    return _close(cells, (free or late)[0], to=owner, by=cells[owner].bucket.by)


def _close(cells: Mapping[str, Reading], name: str, *, to: str, by: int) -> list[Action]:
    if is_blocked(cells[name].bucket, to=to):
        return _settle(cells, name)
    return [Close(name, to, by)]


def _settle(cells: Mapping[str, Reading], name: str) -> list[Action]:
    """Return the last step of the move that brought the bucket to this cell, if its time has come."""
    mine = cells[name].bucket
    if not mine.asks:
        return []
    old = cells[mine.asks]
    if not is_closed(old.bucket, by=mine.by) or not old.empty:
        return []
    return [Settle(name, mine.by, cells[name].home)]
