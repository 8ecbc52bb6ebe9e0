"""Rules about many cells broken on purpose, one at a time: the mutants of spec/Cells.tla, and what takes the place of
the product's functions in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from dhsched.cells import buckets, moves, workers
from dhsched.cells.buckets import Absent, Ask, Bucket, NotClosed, Take
from dhsched.cells.maps import ANNOUNCE_WAIT_S
from spec import cells
from spec.broken_rules import function
from spec.mutant import Mutant


def create_asking_nobody(real: Any, bucket: Bucket, **named: Any) -> Any:
    answer = real(bucket, **named)
    return Take() if isinstance(answer, Ask) else answer


def create_where_it_went_from(real: Any, bucket: Bucket, *, by: int, **named: Any) -> Any:
    return Take() if bucket.state != "none" and bucket.by == by + 1 else real(bucket, by=by, **named)


def absent_while_open(real: Any, *arguments: Any, **named: Any) -> Any:
    answer = real(*arguments, **named)
    return Absent() if isinstance(answer, NotClosed) else answer


def above_the_other(real: Any, kept: tuple[cells.Kept, ...], c: int) -> int:
    """Two cells: the other one is the one that is asked."""
    others: list[int] = [each.base + 1 for x, each in enumerate(kept, 1) if x != c and kept[c - 1].asks]
    own: int = real(kept, c)
    return max(own, *others, 0)


def plan_without_waiting(real: Any, *arguments: Any, announced_s: float, **named: Any) -> Any:
    return real(*arguments, announced_s=ANNOUNCE_WAIT_S, **named)


def plan_without_a_walk(real: Any, readings: dict[str, moves.Reading], *rest: Any, **named: Any) -> Any:
    return real({name: replace(reading, empty=True) for name, reading in readings.items()}, *rest, **named)


def open_below(real: Any, bucket: Bucket, *, by: int, source: str) -> Any:
    return Bucket("mine", by, source) if bucket.by == by + 1 else real(bucket, by=by, source=source)


@contextmanager
def never_blocked() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (buckets, moves):
            stack.enter_context(function(module, "is_blocked", lambda real, *arguments, **named: False))
        yield


CELL_MUTANTS = (
    Mutant(
        "no-wait",
        "the old cell is closed while replicas still create by a map from before the announcement",
        tlc=("CellsForgetOld", "Same"),
        explorer=("CellsForgetOld", "Same"),
        patch=lambda: function(moves, "plan", plan_without_waiting),
    ),
    Mutant(
        "open-cell-says-absent",
        "a cell that has forgotten that it was closed says that it does not have the live",
        tlc=("CellsForgetOld", "Same"),
        explorer=("CellsForgetOld", "Same"),
        patch=lambda: function(buckets, "answer_question", absent_while_open),
    ),
    Mutant(
        "pass-outlives-a-home",
        "a create goes on in a cell that has forgotten since the create began",
        tlc=("CellsForgetOld", "Same"),
    ),
    Mutant(
        "created-above-the-other",
        "a live gets the number above those of the cell before, instead of the cell's own next one",
        tlc=("CellsForgetNew", "Twice"),
        explorer=("CellsForgetNew", "Twice"),
        patch=lambda: function(cells, "next_number", above_the_other),
    ),
    Mutant(
        "new-cell-asks-nobody",
        "a cell that has just got the bucket creates without asking the cell before",
        tlc=("Cells", "Same"),
        explorer=("Cells", "Same"),
        patch=lambda: function(buckets, "answer_create", create_asking_nobody),
    ),
    Mutant(
        "move-not-compared",
        "a cell takes a create that names the move before its own",
        tlc=("Cells", "Same"),
        explorer=("Cells", "Same"),
        patch=lambda: function(buckets, "answer_create", create_where_it_went_from),
    ),
    Mutant(
        "settles-before-empty",
        "a cell stops asking the cell before while that one has lives",
        tlc=("Cells", "Quiet"),
        explorer=("Cells", "Quiet"),
        patch=lambda: function(moves, "plan", plan_without_a_walk),
    ),
    Mutant(
        "close-while-asking",
        "a bucket moves on while the cell that it leaves still asks the one before",
        tlc=("CellsThree", "Quiet"),
        explorer=("CellsThree", "Quiet"),
        patch=never_blocked,
    ),
    Mutant(
        "opens-below",
        "a slow mover opens a bucket in a cell that it has left since",
        tlc=("CellsBack", "OneOwner"),
        explorer=("CellsBack", "OneOwner"),
        patch=lambda: function(buckets, "open_bucket", open_below),
    ),
    Mutant(
        "opens-without-the-map",
        "a cell opens a bucket and keeps a map that does not speak of it",
        tlc=("LongCellsTwo", "Named"),
    ),
    Mutant(
        "settle-outlives-a-home",
        "a cell stops asking because of a walk from before it forgot",
        tlc=("LongCellsMovers", "Same"),
    ),
    Mutant(
        "closes-one-cell-only",
        "a cell that the bucket left two moves ago and that has forgotten it stays open",
        tlc=("LiveCellsThree", "temporal"),
    ),
    Mutant(
        "leaves-a-lost-cell",
        "a bucket moves on from a cell that has forgotten it, and that asked another one",
        tlc=("CellsThreeForget", "Same"),
    ),
    Mutant(
        "registers-while-stopping",
        "a process registers anew while a runtime of its last registration still stops",
        tlc=("CellWorkers", "I4"),
        explorer=("CellWorkers", "Own"),
        patch=lambda: function(workers, "may_register", lambda real, *arguments: True),
    ),
    Mutant(
        "takes-any-table",
        "an agent takes a slot table of another registration",
        tlc=("CellWorkers", "Given"),
        explorer=("CellWorkers", "Given"),
        patch=lambda: function(workers, "is_own", lambda real, *arguments: True),
    ),
    Mutant(
        "strays-stay",
        "nobody ends a live that is in two cells",
        tlc=("LiveCells", "temporal"),
    ),
)
