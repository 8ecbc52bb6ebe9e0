"""The map: which cell has which bucket. A hint with a version, of which every cell has a copy.

The map decides nothing: a cell takes a create by what it has written itself (buckets.py). But a replica of Dispatch
whose map is from before an announcement would not ask the next cell first; so it creates nothing once its map is older
than MAP_AGE_MAX_S, and a move closes nothing before ANNOUNCE_WAIT_S are over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

MAP_AGE_MAX_S = 10.0  # A replica that has read no map for so long creates nothing, and answers 503.
ANNOUNCE_WAIT_S = (
    30.0  # From the announcement, in every cell, to the close: an old map and a call in flight, with slack.
)


class Version(NamedTuple):
    """Which of two maps is the newer one. `draw` is random: two of one number are of two writers, and one wins."""

    config: int = 0  # Raised when another cell becomes the one where configuration is written.
    number: int = 0
    draw: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """Where one bucket is: in `cell` by move `by`, before that in `was`; `next` is announced to get it by `by + 1`."""

    cell: str
    by: int = 1
    was: str = ""
    next: str = ""

    @property
    def moving(self) -> int:
        """Return the number of the last move that the row speaks of."""
        return self.by + 1 if self.next else self.by

    @property
    def source(self) -> str:
        """Return the cell that this move takes the bucket from; empty for the first."""
        return self.cell if self.next else self.was

    @property
    def target(self) -> str:
        return self.next or self.cell


@dataclass(frozen=True, slots=True)
class CellMap:
    """One version of the map."""

    version: Version
    rows: Mapping[int, Row]


def highest(maps: Iterable[CellMap]) -> CellMap:
    """Return the map that counts, of those that were read."""
    return max(maps, key=lambda each: each.version)


def install(mine: CellMap, offered: CellMap) -> CellMap:
    """Return what a cell keeps: the map that it is offered only if that is newer."""
    return offered if offered.version > mine.version else mine


def announced(current: CellMap, bucket: int, *, to: str, draw: int) -> CellMap:
    """Return the next version, in which `to` is announced for the bucket."""
    return _with(current, bucket, replace(current.rows[bucket], next=to), draw)


def published(current: CellMap, bucket: int, *, draw: int) -> CellMap:
    """Return the next version, in which the announced cell has the bucket."""
    row = current.rows[bucket]
    return _with(current, bucket, Row(row.next, row.moving, was=row.cell), draw) if row.next else current


def _with(current: CellMap, bucket: int, row: Row, draw: int) -> CellMap:
    version = Version(current.version.config, current.version.number + 1, draw)
    return CellMap(version, {**current.rows, bucket: row})


def may_create(age_s: float) -> bool:
    """Return whether a replica may create by a map that it read so long ago."""
    return age_s <= MAP_AGE_MAX_S
