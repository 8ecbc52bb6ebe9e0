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
from dhsched.cells.maps import ANNOUNCE_WAIT_S, CellMap, Row, Version, highest


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
    source = cells[row.source].bucket if row.source else None
    if source is None:
        return [Announce(want, by + 1)] if want not in ("", row.target) else []
    if target.by >= by:
        for name in sorted(cells):  # The next cell is open: whoever has forgotten that the bucket has left is closed.
            bucket_there = cells[name].bucket
            if bucket_there.by < by and (name == row.source or bucket_there.state == "mine"):
                return _close(cells, name, row)
        if row.next:
            return [Publish(row.target, by)]
        if want not in ("", row.target):
            return [Announce(want, by + 1)]
        return _settle(cells, row.target)
    if source.by >= by:
        return [Open(row.target, row.source, by)]
    behind = [name for name in (row.source, row.target) if cells[name].map.version < newest.version]
    if behind:
        return [CopyMap(name, newest.version) for name in behind]
    if announced_s < ANNOUNCE_WAIT_S:
        return [Wait(ANNOUNCE_WAIT_S - announced_s)]
    return _close(cells, row.source, row)


def _close(cells: Mapping[str, Reading], name: str, row: Row) -> list[Action]:
    if is_blocked(cells[name].bucket, to=row.target):
        return _settle(cells, name)
    return [Close(name, row.target, row.moving)]


def _settle(cells: Mapping[str, Reading], name: str) -> list[Action]:
    """Return the last step of the move that brought the bucket to this cell, if its time has come."""
    mine = cells[name].bucket
    if not mine.asks:
        return []
    old = cells[mine.asks]
    if not is_closed(old.bucket, by=mine.by) or not old.empty:
        return []
    return [Settle(name, mine.by, cells[name].home)]
