"""A bucket, as one cell has written it down: who may create lives of the bucket here, and how that changes.

Ownership is positive: a cell takes creates of a bucket only while it is `mine`, by exactly the move that the create
names. A move closes the bucket in one cell, for ever or until a later move brings it back, and then opens it in
another. So whatever one cell forgets, no two cells have one bucket by the same move.

A cell that has opened a bucket *asks* the cell before it, since lives stay where they were born: a live that is not
here may be there. The answer `Absent` counts only from a cell that is closed. An open one could create the live right
after it has answered (mutant open-cell-says-absent).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

BUCKETS = 1_024  # For ever: ids are never dealt out anew, only buckets move.


def bucket_of(live: str) -> int:
    """Return the bucket of a live, which is `tenant/live_id`."""
    return crc32(live.encode()) % BUCKETS


@dataclass(frozen=True, slots=True)
class Bucket:
    """What one cell has written of one bucket: nothing, or `mine` or `away` by the move with the number `by`.

    `other` is the cell that is asked before a live is created here, while it may have lives of the bucket; of a bucket
    that is away, the cell that it went to.
    """

    state: Literal["none", "mine", "away"] = "none"
    by: int = 0
    other: str = ""

    @property
    def asks(self) -> str:
        """Return the cell that must be asked before a live is created here; empty if there is none."""
        return self.other if self.state == "mine" else ""


# -- what a cell answers


@dataclass(frozen=True, slots=True)
class Take:
    """The cell takes the create: its step `place` creates the live, or answers for the one that is here."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The live is not here, and may be in this cell, where the bucket was before."""

    cell: str


@dataclass(frozen=True, slots=True)
class Away:
    """The bucket went to this cell, by this move."""

    cell: str
    by: int


@dataclass(frozen=True, slots=True)
class NotYet:
    """The move that the create names has not come here; the cell knows of moves up to `by`."""

    by: int


@dataclass(frozen=True, slots=True)
class Older:
    """The bucket is here by a later move than the create names: its caller's map is older."""

    by: int


Answer = Take | Ask | Away | NotYet | Older


def answer_create(bucket: Bucket, *, by: int, has: bool, vouched: bool = False) -> Answer:
    """Return what a cell answers to a create that names move `by`. `has`: the live has a record here.

    `vouched`: the caller has asked the cell before, and that one is closed and does not have the live.
    """
    if bucket.state == "mine" and bucket.by == by:
        return Ask(bucket.asks) if bucket.asks and not vouched and not has else Take()
    if bucket.by > by:
        return Away(bucket.other, bucket.by) if bucket.state == "away" else Older(bucket.by)
    return NotYet(bucket.by)


@dataclass(frozen=True, slots=True)
class Has:
    """The live has a record here, open or ended: this cell answers the create, by id and fingerprint."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The live is not here, and never will be: the bucket is closed."""


@dataclass(frozen=True, slots=True)
class NotClosed:
    """The bucket is open here: the cell has forgotten that it was closed. Its move must go on before anything else."""

    by: int


Asked = Has | Absent | NotClosed


def answer_question(bucket: Bucket, *, by: int, has: bool) -> Asked:
    """Return what a cell answers to the one that has the bucket by move `by`, or to whoever asks in its name."""
    if has:
        return Has()
    return Absent() if is_closed(bucket, by=by) else NotClosed(bucket.by)


def is_closed(bucket: Bucket, *, by: int) -> bool:
    """Return whether this cell creates nothing by an earlier move than `by`."""
    return bucket.state == "away" and bucket.by >= by


# -- what a move writes: each is one script, compared with what the cell has now


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was written: the cell has something else by now. Read the cells and decide anew."""

    found: Bucket


def close(bucket: Bucket, *, by: int, to: str) -> Bucket | Refused:
    """Return the bucket away, to `to` by move `by`. A cell that has forgotten the bucket is closed all the same."""
    if is_away(bucket, by=by, to=to):
        return bucket
    if bucket.by >= by or is_blocked(bucket, to=to):
        return Refused(bucket)
    return Bucket("away", by, to)


def is_away(bucket: Bucket, *, by: int, to: str) -> bool:
    return bucket == Bucket("away", by, to)


def is_blocked(bucket: Bucket, *, to: str) -> bool:
    """Return whether the bucket may not be closed: it still asks the cell before, which the next one would not ask.

    Straight back is no harm: the cell that is asked is the next one itself.
    """
    return bucket.asks not in ("", to)


def open_bucket(bucket: Bucket, *, by: int, source: str) -> Bucket | Refused:
    """Return the bucket mine, by move `by`, asking the cell that it came from. Only above what the cell has."""
    if bucket.state == "mine" and bucket.by == by:
        return bucket
    return Refused(bucket) if bucket.by >= by else Bucket("mine", by, source)


def settle(bucket: Bucket, *, by: int) -> Bucket | Refused:
    """Return the bucket asking nobody any more: the cell before is closed, and was walked and found empty.

    Its caller names the home of this cell from before the walk: if the cell has forgotten meanwhile, the bucket may
    have been opened anew, and what was walked may have lives again (mutant settle-outlives-a-home).
    """
    return Bucket("mine", by) if bucket.state == "mine" and bucket.by == by else Refused(bucket)


# -- lives that are in two cells


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What another cell says of a bucket and of one live in it."""

    bucket: Bucket
    has: bool


def is_stray(here: Bucket, cell: str, there: Elsewhere) -> bool:
    """Return whether an open live of `cell` must end: another cell has its bucket by a later move, and its own record.

    Or it asks this cell no more, so nobody finds the live here. Only a cell that forgets brings either about.
    """
    other = there.bucket
    return other.state == "mine" and other.by >= here.by and (there.has or other.asks != cell)
