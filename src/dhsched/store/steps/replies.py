"""Decodes a step's reply to its outcome. A reply is a word, the store's time, and the outcome's fields in order.

In a call that many lives share, each row is a word and the fields. What almost every row of an append or an ack is
answered is its number alone: a row that is an array costs the store more than the row's HSET does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from dhsched.errors import StoreIncompatible
from dhsched.ownership import outcomes as o
from dhsched.ownership.state import Home
from dhsched.types import Generation, LifetimeReason, LiveState, Mode, SlotState

Fields = Sequence[Any]


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def generation(worker: Any, epoch: int) -> Generation | None:
    return Generation(text(worker), epoch) if worker else None


def refusals(fields: Fields) -> tuple[o.Refusal, ...]:
    rows = (fields[i : i + 4] for i in range(0, len(fields), 4))
    return tuple(
        o.Refusal(text(w), cast(o.Refused, text(reason)), load, capacity) for w, reason, load, capacity in rows
    )


def reported(f: Fields) -> o.Reported:
    table = None if f[5] else {text(f[i]): cast(SlotState, text(f[i + 1])) or None for i in range(7, len(f), 2)}
    return o.Reported(f[0], text(f[1]), f[2], f[3], cast(Mode, text(f[4])), table, f[6])


def home_of(row: bytes) -> Home:
    """Return a home from its row in the store: its name, its position and its time."""
    name, pos, at = text(row).split()
    return Home(name, int(pos), int(at))


def entered(f: Fields) -> o.Entered:
    return o.Entered(text(f[0]), bool(f[1]), f[2], tuple(map(home_of, f[3:])))


def committed(f: Fields) -> o.Committed:
    return o.Committed(Generation(text(f[0]), f[1]), f[2], f[3], bool(f[4]), generation(f[5], f[6]), refusals(f[7:]))


def held(f: Fields) -> o.Held:
    at = text(f[0])
    return o.Held("next" if at == "next" else int(at))


def pulling(f: Fields) -> o.Pulling:
    journal = tuple(f[9:]) if f[8] else None
    return o.Pulling(f[0], f[1], text(f[2]), text(f[3]), f[4], f[5], f[6], f[7], journal)


def recover(f: Fields) -> o.Recover:
    return o.Recover(f[0], cast(o.Need, text(f[1])), text(f[2]), text(f[3]), f[4], f[5])


OUTCOMES: dict[bytes, Callable[[Fields], Any]] = {
    b"NOT_FOUND": lambda f: o.NotFound(),
    b"ENDED": lambda f: o.Ended(),
    b"STALE": lambda f: o.Stale(generation(f[0], f[1]), f[2]),
    b"MOOT": lambda f: o.Moot(),
    b"NOTHING": lambda f: o.Nothing(),
    b"ENTERED": entered,
    b"REGISTERED": lambda f: o.Registered(text(f[0]), cast(Mode, text(f[1])), bool(f[2])),
    b"REPORTED": reported,
    b"GONE": lambda f: o.Gone(),
    b"WORKER_SET": lambda f: o.WorkerSet(cast(Mode, text(f[0])), bool(f[1])),
    b"EXPIRED": lambda f: o.Expired(f[0]),
    b"ALIVE": lambda f: o.Alive(f[0]),
    b"DEPARTED": lambda f: o.Departed(cast(SlotState, text(f[0]))),
    b"COMMITTED": committed,
    b"NOT_YET": lambda f: o.NotYet(),
    b"CONFLICT": lambda f: o.Conflict(),
    b"QUOTA": lambda f: o.Quota(f[0], f[1]),
    b"FULL": lambda f: o.Full(refusals(f)),
    b"STARTING": lambda f: o.Starting(refusals(f)),
    b"WAITING": lambda f: o.Waiting(refusals(f)),
    b"RESERVED": lambda f: o.Reserved(text(f[0]), f[1], bool(f[2])),
    b"BUSY": lambda f: o.Busy(f[0]),
    b"HELD": held,
    b"NO_MOVE": lambda f: o.NoMove(),
    b"CANCELLED": lambda f: o.Cancelled(),
    b"PULLING": pulling,
    b"APPENDED": lambda f: o.Appended(*f),
    b"DUPLICATE": lambda f: o.Duplicate(*f),
    b"GAP": lambda f: o.Gap(f[0]),
    b"CLOSING": lambda f: o.Closing(),
    b"TOO_MANY_PENDING": lambda f: o.TooManyPending(f[0]),
    b"TOO_MANY_PRODUCERS": lambda f: o.TooManyProducers(f[0]),
    b"ITEMS": lambda f: o.Items(f[0], tuple(f[2:]), bool(f[1])),
    b"ACKED": lambda f: o.Acked(f[0], bool(f[1])),
    b"EMITTED": lambda f: o.Emitted(f[0]),
    b"AHEAD": lambda f: o.Ahead(f[0]),
    b"JOURNAL_FULL": lambda f: o.JournalFull(f[0]),
    b"FINISHED": lambda f: o.Finished(cast(LiveState, text(f[0]))),
    b"SWEPT": lambda f: o.Swept(),
    b"LIFETIME_OVER": lambda f: o.LifetimeOver(cast(LifetimeReason, text(f[0])), cast(LiveState, text(f[1]))),
    b"RECOVER": recover,
    b"WAKE": lambda f: o.Wake(),
    b"IDLE": lambda f: o.Idle(),
    b"LATER": lambda f: o.Later(f[0]),
    b"NEW_TERM": lambda f: o.NewTerm(f[0], f[1]),
}


def outcome(word: bytes, fields: Fields) -> Any:
    """Return the outcome for a reply's word and fields. Raise StoreIncompatible for an unknown word."""
    try:
        make = OUTCOMES[word]
    except (KeyError, TypeError):
        raise StoreIncompatible(
            f"the store answered a step with {word!r}, which this version of dhsched does not know; run one version of"
            " dhsched on a store"
        ) from None
    return make(fields)


def appended_row(row: Any) -> Any:
    """Return the outcome of one row of an append."""
    return o.Appended(row) if row.__class__ is int else outcome(row[0], row[1:])


def other_row(row: Any) -> Any:
    """Return the outcome of one row of a look, a release, an ack or an emit."""
    return o.Acked(row, False) if row.__class__ is int else outcome(row[0], row[1:])


class Reader:
    """Reads the replies of one store. `now_ms` is the store's time in the latest reply that has it, and `pos` the
    position of the latest call that was counted."""

    __slots__ = ("now_ms", "pos")

    def __init__(self) -> None:
        self.now_ms = 0
        self.pos = 0

    def outcome(self, reply: Sequence[Any]) -> Any:
        """Return the outcome of a step that is counted."""
        self.now_ms = reply[1] or self.now_ms
        self.pos = reply[-1]
        return outcome(reply[0], reply[2:-1])

    def appended(self, reply: Sequence[Any]) -> list[Any]:
        """Return the outcome of each row of an append, which is counted."""
        self.now_ms = reply[0] or self.now_ms
        self.pos = reply[-1]
        return [appended_row(row) for row in reply[1:-1]]

    def looked(self, reply: Sequence[Any]) -> list[Any]:
        """Return the outcome of each row of a look, which is counted."""
        self.pos = reply[-1]
        return self.outcomes(reply[:-1])

    def outcomes(self, reply: Sequence[Any]) -> list[Any]:
        """Return the outcome of each row of a release, an ack or an emit."""
        self.now_ms = reply[0] or self.now_ms
        return [other_row(row) for row in reply[1:]]

    def entered(self, reply: Sequence[Any]) -> Any:
        """Return the outcome of enter."""
        self.now_ms = reply[1]
        return outcome(reply[0], reply[2:])

    def changed(self, reply: Sequence[Any]) -> Sequence[Any]:
        """Return what a script around the protocol answered that is counted."""
        self.pos = reply[-1]
        return reply[:-1]
