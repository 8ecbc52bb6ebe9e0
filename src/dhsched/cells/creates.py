"""One create over several cells: which cell is called next, given what the last one answered.

A create is a pass of one to four calls, each to one cell. All calls that write name the home of their cell as of the
beginning of the pass: a cell that has forgotten something since refuses, and the pass begins anew. Otherwise what the
first cell said and what the next one does would belong to two histories (mutant pass-outlives-a-home). So the store
link must not send such a call again in the next home by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from dhsched.cells.buckets import Absent, Answer, Ask, Asked, Has, NotYet, Take
from dhsched.cells.maps import Row


@dataclass(frozen=True, slots=True)
class Call:
    """Call `place` of this cell, naming the move, and the cell's home from the beginning of the pass."""

    cell: str
    by: int
    vouched: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """Ask `cell`, in the name of the one that has the bucket by move `by`, whether it has the live."""

    cell: str
    by: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The pass is over: what this cell says of the live is the answer."""

    cell: str


@dataclass(frozen=True, slots=True)
class Again:
    """The pass is over without an answer: read the map, and begin anew, or answer 503."""


Next = Call | Question | Answered | Again


def first_call(row: Row) -> Call:
    """Return the first call of a pass. An announced cell comes first, so that nobody is late to see it open."""
    return Call(row.target, row.moving)


def after_call(row: Row, call: Call, answer: Answer) -> Next:
    """Return what comes after a cell has answered a call."""
    match answer:
        case Take():
            return Answered(call.cell)
        case Ask(old):
            return Question(old, call.by)
        case NotYet() if row.next == call.cell and call.by == row.moving:
            return Call(row.cell, row.by)
        case _:
            # Away and Older say where the bucket is by now. A pass that went on there would need the homes of that cell
            # from its own beginning; the next pass has them.
            return Again()


def after_question(call: Call, question: Question, answer: Asked) -> Next:
    """Return what comes after the cell before has been asked. `call` is the one that was answered Ask."""
    match answer:
        case Has():
            return Answered(question.cell)
        case Absent():
            return Call(call.cell, call.by, vouched=True)
        case _:
            return Again()
