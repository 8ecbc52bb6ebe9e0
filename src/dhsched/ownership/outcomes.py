"""The outcomes of the steps: values, because losing a race is normal. docs/internals/protocol.md has the table.

The class name in capitals is the word of the Lua step's reply: `NotYet` is NOT_YET.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dhsched.ownership.state import Home
from dhsched.types import Generation, LifetimeReason, LiveState, Mode, SlotState


@dataclass(frozen=True, slots=True)
class NotFound:
    """No such live or Worker."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The live has ended. Final for this id until it is swept."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The caller's generation, or pull, is not the current one. `current` is; do not retry with the old one."""

    current: Generation | None
    pull_no: int = 0


@dataclass(frozen=True, slots=True)
class Moot:
    """The reason for the step is gone; nothing was done."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """The step had nothing to do, or had been done before."""


@dataclass(frozen=True, slots=True)
class Entered:
    """The home that is current now, with every one before it, and the cell's position; `again` if it was current
    already."""

    home: str
    again: bool
    pos: int
    homes: tuple[Home, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """The id of this boot."""

    worker: str
    mode: Mode
    again: bool


@dataclass(frozen=True, slots=True)
class Reported:
    """The report counted. `table` is the whole slot table, or with a `base` what has changed since that revision: the
    state of each such slot, None if it is gone. No table: the reporter has the one of this home, term and rev."""

    beat: int
    home: str
    term: int
    rev: int
    mode: Mode
    table: Mapping[str, SlotState | None] | None
    base: int = 0


@dataclass(frozen=True, slots=True)
class Gone:
    """This boot is over: stop every runtime, then register anew."""


@dataclass(frozen=True, slots=True)
class WorkerSet:
    """The Worker's mode now; `gone` if it has left for good."""

    mode: Mode
    gone: bool


@dataclass(frozen=True, slots=True)
class Expired:
    """The Worker is lost. `lives` current generations on it were put on the agenda."""

    lives: int


@dataclass(frozen=True, slots=True)
class Alive:
    """The Worker has reported since; its beat now."""

    beat: int


@dataclass(frozen=True, slots=True)
class Departed:
    """The Worker does not run this slot, which was in state `was`."""

    was: SlotState


Refused = Literal["UNKNOWN", "GONE", "LOST", "CORDONED", "DRAINING", "NEW", "FULL", "STARTING", "WAITING"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a candidate was refused, with its true load, by which placement corrects its view."""

    worker: str
    reason: Refused
    load: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The live's generation. `again`: the operation had been committed before; `superseded_by` is the current one."""

    generation: Generation
    rev: int
    load: int
    again: bool = False
    superseded_by: Generation | None = None
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class NotYet:
    """The live has not come to rest at the boundary that its move waits for."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The id is taken by a live that was created with other parameters."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The tenant has as many lives that have not ended as it may."""

    lives: int
    lives_max: int


@dataclass(frozen=True, slots=True)
class Full:
    """No Worker of the named Pools has a free slot."""

    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Starting:
    """There is a free slot, but every Worker that has one is starting as many lives as it may."""

    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """There may be a free slot, but lives that lost their Worker wait for it, and they go before creates."""

    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Reserved:
    """The live's move. `again`: it was there before this call."""

    target: str
    number: int
    again: bool


@dataclass(frozen=True, slots=True)
class Busy:
    """The source Worker has as many moves under way as it may."""

    cutovers: int


@dataclass(frozen=True, slots=True)
class Held:
    """Input stops after item `at`, or, if `at` is "next", after the next boundary that is released."""

    at: int | Literal["next"]


@dataclass(frozen=True, slots=True)
class NoMove:
    """The live has no move with this number (any more)."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The move is gone and its reservation given back."""


@dataclass(frozen=True, slots=True)
class Pulling:
    """The Worker's pull is granted. Input goes on after `after`; older pulls of this generation are dead.

    `journal_last` is the number of the last journal entry; `journal` has the entries, if the pull asked for them.
    """

    pull_no: int
    after: int
    digital_id: str
    room: str
    metadata: bytes
    config: bytes
    saved: bytes
    journal_last: int = 0
    journal: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The item is accepted, and stored, as number `seq`. `mark` is its mark if it was released as well, else empty.

    `dropped` is how many items an interrupt has dropped: those right before it.
    """

    seq: int
    mark: bytes = b""
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The item was accepted before; as number `seq`, if it is the last one of its producer, else 0."""

    seq: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """Numbers were skipped: `last` is the last one that was accepted, of a producer's items, a journal or messages."""

    last: int


@dataclass(frozen=True, slots=True)
class Closing:
    """The live takes no more input; it ends when its pending input has been acked."""


@dataclass(frozen=True, slots=True)
class TooManyPending:
    """The live's queue is full."""

    pending: int


@dataclass(frozen=True, slots=True)
class TooManyProducers:
    """The live remembers as many producers as it can."""

    producers: int


@dataclass(frozen=True, slots=True)
class Items:
    """Input released to the pull: items `first`, `first`+1, ... With `more`, the next ack opens the window for more."""

    first: int
    items: tuple[bytes, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Acked:
    """The ack cursor now; `ended` if the live was closing and this was its last item."""

    acked: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Emitted:
    """The last message of this generation that is stored."""

    n: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """The ack is of an item that was not released."""

    released: int


@dataclass(frozen=True, slots=True)
class JournalFull:
    """The journal would have this many bytes, or too many entries; nothing of the ack was taken."""

    bytes: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The live's state after end_live."""

    state: LiveState


Need = Literal["vacant", "lost", "gone", "floor", "stalled"]


@dataclass(frozen=True, slots=True)
class Recover:
    """The live needs a new generation; the caller has a lease to place it."""

    epoch: int
    need: Need
    worker: str
    digital_id: str
    priority: int
    tries: int


@dataclass(frozen=True, slots=True)
class Wake:
    """No progress for a period: the live's Worker and controller were woken. Only a second look recovers."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The live needs no look any more; it left the agenda."""


@dataclass(frozen=True, slots=True)
class Later:
    """The live is not due yet; `at` is when it is."""

    at: int


@dataclass(frozen=True, slots=True)
class Swept:
    """The ended live was removed; its numbers will not be issued again."""


@dataclass(frozen=True, slots=True)
class LifetimeOver:
    """The live's lifetime is over, for this reason: it has ended, or is closing until its pending input is consumed."""

    reason: LifetimeReason
    state: LiveState


@dataclass(frozen=True, slots=True)
class NewTerm:
    """A new term has begun: every generation issued before is below the floor."""

    term: int
    floor: int


RegisterOutcome = Registered
ReportOutcome = Reported | Gone
SetOutcome = WorkerSet | NotFound | Moot
ExpireOutcome = Expired | Alive | Nothing
DepartOutcome = Departed | Nothing
PlaceOutcome = Committed | Stale | Moot | NotYet | Quota | Full | Starting | Waiting | Conflict | Ended | NotFound
ReserveOutcome = Reserved | Stale | Busy | Full | Ended | NotFound
HoldOutcome = Held | NoMove
CancelOutcome = Cancelled | NoMove
PullOutcome = Pulling | Stale | Ended
AppendOutcome = Appended | Duplicate | Gap | Closing | Ended | NotFound | TooManyPending | TooManyProducers
ReleaseOutcome = Items | Nothing | Stale | Ended
AckOutcome = Acked | Ahead | Gap | JournalFull | Stale | Ended
EmitOutcome = Emitted | Gap | Stale | Ended
EndOutcome = Finished | NotFound
LookOutcome = Swept | Recover | Wake | Idle | Later | LifetimeOver | Nothing
NewTermOutcome = NewTerm | Moot
EnterOutcome = Entered
Outcome = (
    EnterOutcome
    | RegisterOutcome
    | ReportOutcome
    | SetOutcome
    | ExpireOutcome
    | DepartOutcome
    | PlaceOutcome
    | ReserveOutcome
    | HoldOutcome
    | CancelOutcome
    | PullOutcome
    | AppendOutcome
    | ReleaseOutcome
    | AckOutcome
    | EmitOutcome
    | EndOutcome
    | LookOutcome
    | NewTermOutcome
)
